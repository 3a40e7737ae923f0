// The routes that are about the server itself, and the files of its page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/access/admission.h"
#include "server/core/server_context.h"

namespace sluice::server {

// `rest` is what the path named. REQUIRES: route is not Live, Prefill, LoadModel or UnloadModel, which take their time
struct OwnCall {
  OwnRoute route;
  std::string_view rest, query;
  std::string client;
};
Reply own_reply(ServerContext& state, const OwnCall& call);
// The end of loading or unloading a model.
Reply repository_reply(const Status& status, std::string_view request_id);
Reply asset_reply(const Asset& asset, const RequestHead& head);
int64_t unix_seconds();
int64_t unix_nanoseconds();

}  // namespace sluice::server
