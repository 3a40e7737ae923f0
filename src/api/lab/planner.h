// Predictions about a served model, for the page's Lab tab. Implemented by whoever links the planner.
#pragma once

#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::api {

// What the sliders say; 0 and empty: as the model is served.
struct PlanQuestion {
  int batch = 0, context = 0;
  std::string weights, device;
};

// A request as it was recorded, or as somebody imagines it.
struct RecordedRequest {
  double at = 0;  // seconds
  int input = 0, output = 0;
};

// Of one question to play().
inline constexpr int kMostPlayed = 256;           // requests
inline constexpr int kMostPlayedTokens = 32'768;  // prompts and answers together

// Thread-safe.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual Result<json::object> plan(const PlanQuestion& question) const = 0;
  // The same requests under several scheduling schemes. `interrupt` is asked between them; null: nothing stops it.
  virtual Result<json::object> play(const std::vector<RecordedRequest>& requests,
                                    Interrupt* interrupt) const = 0;
};

}  // namespace sluice::api
