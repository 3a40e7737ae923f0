#include "route/prompt_reader.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "kv/prefix_key.h"

namespace sluice::route {

namespace {

// Reading happens between the bytes of all other requests; longer bodies go by load alone.
constexpr size_t kLongestBody = size_t{256} << 10;

const api::Operation* operation_of(std::string_view method, std::string_view path) {
  const std::vector<api::Operation>& rows = api::operations();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const api::Operation& row) {
    return row.method == method && row.path == path && row.request != nullptr;
  });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::optional<ReadPrompt> PromptReader::read(std::string_view method, std::string_view path,
                                             const std::string& body) const {
  const api::Operation* operation = models_.empty() ? nullptr : operation_of(method, path);
  if (operation == nullptr || body.size() > kLongestBody) return std::nullopt;
  try {
    const api::Call call{.operation = operation, .body = body, .models = models_, .any_model_name = true};
    api::Reply reply = operation->run(call);
    auto* job = std::get_if<api::EngineJob>(&reply);
    if (job == nullptr || job->submissions.empty()) return std::nullopt;
    request::Request& request = job->submissions.front().request;
    return ReadPrompt{std::move(request.prompt), std::move(request.cache_salt)};
  } catch (const std::exception&) {  // the replica will say what is wrong with it
    return std::nullopt;
  }
}

PromptBlocks blocks_of(const ReadPrompt& prompt, const ReplicaState& replica, std::string_view salt) {
  PromptBlocks out{{}, static_cast<int64_t>(prompt.tokens.size())};
  if (replica.block_size <= 0) return out;
  const auto size = static_cast<size_t>(replica.block_size);
  kv::PrefixKey key = kv::root_key(replica.kv_model, std::string(salt) + prompt.salt);
  // At least one token is left to run, as KvManager::match() has it.
  for (size_t begin = 0; begin + size < prompt.tokens.size(); begin += size) {
    key = kv::child_key(key, std::span(prompt.tokens).subspan(begin, size));
    out.keys.push_back(kv::short_key(key));
  }
  return out;
}

}  // namespace sluice::route
