#include "api/prompt/pictures.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "api/core/errors.h"
#include "base/clock.h"

namespace sluice::api {

namespace {

// Fetches what is given by address, all of a request's pictures within one time.
class PictureFiles {
 public:
  explicit PictureFiles(const Call& call) : call_(call) {}

  Result<std::string> get(PictureSource& source) const {
    if (auto* file = std::get_if<std::string>(&source)) return std::move(*file);
    const auto& [url, where] = std::get<PictureAddress>(source);
    const auto wrong = [](std::string message) {
      return Error{ErrorCode::InvalidArgument, std::move(message)};
    };
    if (call_.fetcher == nullptr)
      return wrong(
          fmt::format("'{}' has the address '{}'; this server takes pictures as 'data:' URLs alone "
                      "(--allow-image-urls lets it fetch others)",
                      where, clipped(url)));
    if (seconds_since(begin_) > kMostFetchSeconds)
      return wrong(fmt::format("the pictures before '{}' took more than {:g} s to fetch, which is the limit",
                               where, kMostFetchSeconds));
    return call_.fetcher->fetch(url, call_.interrupt);
  }

 private:
  static constexpr double kMostFetchSeconds = 30;
  const Call& call_;
  const TimePoint begin_ = Clock::now();
};

}  // namespace

Problem read_pictures(const Call& call, const ServedModel& model, ChatDraft& chat) {
  if (chat.files.empty()) return std::nullopt;
  if (model.pictures == nullptr)
    return invalid_value(
        "messages", fmt::format("the model '{}' reads text alone; the conversation has {} pictures", model.id,
                                chat.files.size()));
  const PictureFiles files(call);
  for (PictureSource& source : chat.files) {
    const Result<std::string> file = files.get(source);
    if (!file) return invalid_value("messages", file.error().message);
    Result<engine::Picture> picture = model.pictures->read(*file);
    if (!picture) return invalid_value("messages", picture.error().message);
    chat.pictures.push_back(std::move(*picture));
  }
  chat.files.clear();
  return std::nullopt;
}

}  // namespace sluice::api
