#include "lab/load/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice::lab {

namespace {

// Steele, Lea and Flood's SplitMix64.
uint64_t split_mix(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

bool read_number(std::string_view text, double& out) {
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && stop == text.data() + text.size() && std::isfinite(out);
}

constexpr double kMostTokens = 1 << 24;

double uniform(uint64_t& state) {  // (0, 1)
  return (double(split_mix(state) >> 11) + 0.5) * 0x1p-53;
}

double normal(uint64_t& state) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log(uniform(state)));
  return radius * std::cos(kTwoPi * uniform(state));
}

// Marsaglia and Tsang's method; for shapes below 1 by Gamma(a) = Gamma(a + 1) U^(1/a).
double gamma_distributed(double shape, uint64_t& state) {
  if (shape == 1) return -std::log(uniform(state));
  if (shape < 1) {
    const double power = std::pow(uniform(state), 1 / shape);
    return gamma_distributed(shape + 1, state) * power;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(state), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(uniform(state)) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

int length(const LengthLaw& law, uint64_t& state) {
  double value = law.first;
  if (law.kind == LengthLaw::Kind::Uniform)
    value = std::floor(law.first + uniform(state) * (law.second - law.first + 1));
  if (law.kind == LengthLaw::Kind::LogNormal)  // the mean of the lengths is the one asked for
    value = std::round(law.first * std::exp(law.second * normal(state) - law.second * law.second / 2));
  return static_cast<int>(std::clamp(value, 1.0, kMostTokens));
}

}  // namespace

Result<LengthLaw> LengthLaw::parse(std::string_view text, std::string_view option) {
  LengthLaw law;
  constexpr std::string_view kLogNormal = "lognormal:";
  bool good = false;
  if (text.starts_with(kLogNormal)) {
    const std::string_view rest = text.substr(kLogNormal.size());
    const size_t colon = rest.find(':');
    law.kind = Kind::LogNormal;
    good = colon != std::string_view::npos && read_number(rest.substr(0, colon), law.first) &&
           read_number(rest.substr(colon + 1), law.second) && law.second >= 0 && law.second <= 10;
  } else if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    law.kind = Kind::Uniform;
    good = read_number(text.substr(0, dash), law.first) && read_number(text.substr(dash + 1), law.second) &&
           law.first <= law.second && law.second <= kMostTokens;
  } else {
    good = read_number(text, law.first);
  }
  if (good && law.first >= 1 && law.first <= kMostTokens) return law;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("--{} '{}' must be as 128, 16-128 or lognormal:MEAN:DEVIATION", option, text)};
}

Workload::Workload(WorkloadOptions options) : options_(std::move(options)), state_(options_.seed) {
  if (!options_.listed.empty() && !options_.duration)
    options_.requests = std::min<int64_t>(options_.requests, static_cast<int64_t>(options_.listed.size()));
  if (options_.prefix_skew <= 0) return;
  double sum = 0;
  for (int group = 0; group < options_.prefix_groups; ++group)
    group_ends_.push_back(sum += std::pow(group + 1, -options_.prefix_skew));
  for (double& end : group_ends_) end /= sum;
}

int64_t Workload::group_of(int64_t conversation) const {
  if (group_ends_.empty()) return conversation % options_.prefix_groups;
  uint64_t state = options_.seed + static_cast<uint64_t>(conversation) * 0xA0761D6478BD642Fu;
  const auto found = std::lower_bound(group_ends_.begin(), group_ends_.end(), uniform(state));
  return std::min<int64_t>(found - group_ends_.begin(), options_.prefix_groups - 1);
}

void Workload::append_tokens(std::vector<Token>& out, uint64_t stream, int count) const {
  uint64_t state = options_.seed * 0x2545F4914F6CDD1Du + stream;
  const auto range = static_cast<uint64_t>(std::max(1, options_.vocab - options_.first_token));
  out.reserve(out.size() + static_cast<size_t>(count));  // many of them may wait at once
  for (int i = 0; i < count; ++i)
    out.push_back(static_cast<Token>(options_.first_token + static_cast<int>(split_mix(state) % range)));
}

void Workload::set_time(LoadRequest& request) {
  if (!std::isfinite(options_.rate)) return;
  request.at = clock_;
  const double grown =
      options_.ramp > 0 ? std::clamp(clock_ / options_.ramp, 0.05, 1.0) : 1;  // share of the rate
  clock_ += gamma_distributed(options_.burstiness, state_) / options_.burstiness / (options_.rate * grown);
}

LoadRequest Workload::next() {
  constexpr uint64_t kPrefixes = 1ull << 40, kBlocks = 1ull << 41;
  LoadRequest out;
  out.number = count_++;
  out.counted = out.number >= options_.warmups;
  if (!options_.listed.empty()) {
    const ListedRequest& row = options_.listed[static_cast<size_t>(out.number) % options_.listed.size()];
    out.text = row.text;
    out.output = row.output > 0 ? row.output : length(options_.output, state_);
    for (size_t i = 0; i < row.blocks.size() && int(out.prompt.size()) < row.input; ++i)
      append_tokens(out.prompt, kBlocks + row.blocks[i],
                    std::min<int>(kTraceBlock, row.input - int(out.prompt.size())));
    if (out.text.empty() && int(out.prompt.size()) < row.input)
      append_tokens(out.prompt, static_cast<uint64_t>(out.number), row.input - int(out.prompt.size()));
    if (options_.listed_times) {
      out.at = row.at;
    } else {
      set_time(out);
    }
    return out;
  }
  // As many conversations as the gap says go on together, a turn of each after the other.
  const int64_t gap = options_.turn_gap, round = out.number / (gap * options_.turns);
  const int64_t turn = out.number / gap % options_.turns, conversation = round * gap + out.number % gap;
  if (options_.prefix > 0)
    append_tokens(out.prompt, kPrefixes + static_cast<uint64_t>(group_of(conversation)), options_.prefix);
  for (int64_t i = 0; i <= turn; ++i) {
    const auto stream = static_cast<uint64_t>(conversation * options_.turns + i);
    uint64_t state = options_.seed + stream * 0xD1342543DE82EF95u;  // the same length in later turns
    append_tokens(out.prompt, stream, length(options_.input, state));
  }
  out.output = length(options_.output, state_);
  set_time(out);
  return out;
}

Dispatcher::Dispatcher(Workload& workload) : workload_(workload) {
  if (workload_.options().requests > 0) next_ = workload_.next();
}

bool Dispatcher::more(double now) const {
  if (!next_) return false;
  const std::optional<double>& duration = workload_.options().duration;
  return duration ? now < *duration && next_->at < *duration : taken_ < workload_.options().requests;
}

std::optional<LoadRequest> Dispatcher::take(double now) {
  const int most = workload_.options().concurrency;
  if (!more(now) || next_->at > now || (most > 0 && running_ >= most)) return std::nullopt;
  LoadRequest out = std::move(*next_);
  ++running_;
  ++taken_;
  next_ = workload_.next();
  return out;
}

double Dispatcher::next_time(double now) const {
  const int most = workload_.options().concurrency;
  if (!more(now) || (most > 0 && running_ >= most)) return std::numeric_limits<double>::infinity();
  return next_->at;
}

}  // namespace sluice::lab
