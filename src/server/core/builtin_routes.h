// The routes that are about the server itself, and the files of its page.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/access/admission.h"
#include "server/core/server_context.h"

namespace sluice::server {

// `rest`: what the path named. REQUIRES: route is not Live, LoadModel or UnloadModel, which take their time
Reply own_reply(ServerContext& state, OwnRoute route, std::string_view rest);
// The end of loading or unloading a model.
Reply repository_reply(const Status& status, std::string_view request_id);
Reply asset_reply(const Asset& asset, const RequestHead& head);
int64_t unix_seconds();
int64_t unix_nanoseconds();

}  // namespace sluice::server
