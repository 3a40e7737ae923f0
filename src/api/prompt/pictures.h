// The pictures of a conversation: fetched where they are given by address, and read as the model's processor does.
#pragma once

#include "api/core/generation.h"
#include "api/core/parsed_request.h"
#include "api/core/service.h"

namespace sluice::api {

// Turns the files of the draft into pictures, one after the other, so that the bytes of one are in memory at a time.
Problem read_pictures(const Call& call, const ServedModel& model, ChatDraft& chat);

}  // namespace sluice::api
