// Fetches the files of pictures that a request gives by address. Implemented by the server, which knows its network.
#pragma once

#include <string>

#include "base/interrupt.h"
#include "base/result.h"

namespace sluice::api {

// Thread-safe.
class PictureFetcher {
 public:
  virtual ~PictureFetcher() = default;
  // The bytes behind an http(s) address. Errors name the address and what it breaks. `interrupt` is asked while the
  // network is waited for; null: nothing stops it but the time limit.
  virtual Result<std::string> fetch(const std::string& url, Interrupt* interrupt) const = 0;
};

}  // namespace sluice::api
