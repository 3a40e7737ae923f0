// What a load asks for: when requests come, how long they are, and what they share.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice::lab {

// A number that is fixed, uniform or log-normal: "128", "16-128", "lognormal:256:0.8" (mean, and the deviation of its
// logarithm).
struct LengthLaw {
  enum class Kind : uint8_t { Fixed, Uniform, LogNormal };
  Kind kind = Kind::Fixed;
  double first = 128, second = 0;  // value; low and high; mean and deviation

  static Result<LengthLaw> parse(std::string_view text, std::string_view option);
};

// A row of a trace file or of a file of conversations.
struct ListedRequest {
  double at = 0;  // seconds
  int input = 0, output = 0;
  std::string text = {};              // in place of `input` tokens
  std::vector<uint64_t> blocks = {};  // Mooncake: ids of the prompt's blocks of kTraceBlock tokens
};
inline constexpr int kTraceBlock = 512;

struct WorkloadOptions {
  int64_t requests = 64;
  std::optional<double> duration;  // seconds in which requests are sent, in place of a count
  LengthLaw input, output;
  int prefix = 0;  // tokens that requests of one group begin with
  int prefix_groups = 1;
  double prefix_skew = 0;  // exponent of Zipf's law of the groups' sizes; 0: equal
  int turns = 1;           // requests of a conversation, each of which begins with the prompt before it
  int turn_gap = 1;        // one of a conversation comes so many requests after the one before it
  double rate =
      std::numeric_limits<double>::infinity();  // requests a second; infinity: no times, a closed loop
  double burstiness = 1;   // shape of the gaps' gamma distribution; 1: Poisson, less: bursts
  double ramp = 0;         // seconds over which the rate grows to its full height
  int concurrency = 0;     // most requests at once; 0: any number
  int warmups = 0;         // first requests that do not count
  int vocab = 20000;       // ids of tokens are below this, ...
  int first_token = 1000;  // ... and no less than this
  uint64_t seed = 0;
  std::vector<ListedRequest> listed;  // of a file, in place of laws
  bool listed_times = false;          // their times are kept
};

struct LoadRequest {
  int64_t number = 0;
  double at = 0;  // seconds after the start
  std::vector<Token> prompt;
  std::string text;  // in place of the prompt
  int output = 0;
  bool counted = true;  // false: a warm-up
};

// The same requests for the same options, in order.
class Workload {
 public:
  explicit Workload(WorkloadOptions options);
  const WorkloadOptions& options() const { return options_; }
  LoadRequest next();

 private:
  int64_t group_of(int64_t conversation) const;
  void append_tokens(std::vector<Token>& out, uint64_t stream, int count) const;
  void set_time(LoadRequest& request);

  WorkloadOptions options_;
  std::vector<double> group_ends_;  // shares of the groups, added up; empty: equal
  uint64_t state_;
  int64_t count_ = 0;
  double clock_ = 0;
};

// JSON of ShareGPT's form, a list of {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", ...}]}; lines
// of Mooncake's traces, {"timestamp": ms, "input_length", "output_length", "hash_ids"}; or Azure's CSV with the columns
// TIMESTAMP, ContextTokens, GeneratedTokens. Found by the content.
Result<std::vector<ListedRequest>> read_requests_file(const std::string& path);

// Says when each request of a workload may go out. Times are seconds after the start.
class Dispatcher {
 public:
  explicit Dispatcher(Workload& workload);

  // The next request, where it may be sent now.
  std::optional<LoadRequest> take(double now);
  // When take() may have something though nothing ends before; infinity: only after an end, or never.
  double next_time(double now) const;
  void ended() { --running_; }
  // All were taken and have ended.
  bool done(double now) const { return running_ == 0 && !more(now); }
  bool exhausted(double now) const { return !more(now); }
  int running() const { return running_; }
  int64_t taken() const { return taken_; }

 private:
  bool more(double now) const;

  Workload& workload_;
  std::optional<LoadRequest> next_;
  int running_ = 0;
  int64_t taken_ = 0;
};

}  // namespace sluice::lab
