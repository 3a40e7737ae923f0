// The routes that are about the server itself, and the files of its page.
#pragma once

#include <cstdint>

#include "server/access/admission.h"
#include "server/core/server_context.h"

namespace sluice::server {

// REQUIRES: route is not Live, which is no single reply
Reply own_reply(ServerContext& state, OwnRoute route);
Reply asset_reply(const Asset& asset, const RequestHead& head);
int64_t unix_seconds();
int64_t unix_nanoseconds();

}  // namespace sluice::server
