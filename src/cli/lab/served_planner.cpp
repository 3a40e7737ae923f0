#include "cli/lab/served_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lab/plan/machine.h"
#include "lab/plan/what_if.h"
#include "lab/sim/play.h"

namespace sluice::cli {

namespace {

// Types that the page offers in place of the file's own.
constexpr DType kOffered[] = {DType::BF16, DType::Q8_0, DType::Q6_K, DType::Q4_K};

lab::Machine machine_of(kernels::Backend& backend) {
  const std::string device = backend.name();
  if (backend.async_device() == nullptr) {
    if (Result<lab::Machine> kept = lab::load_machine(lab::calibration_path())) return *kept;
    lab::Machine like = *lab::machine_named("EPYC");
    like.name = "a server's processor (EPYC 9654; 'sluice plan --calibrate' measures this one)";
    return like;
  }
  if (Result<lab::Machine> kept = lab::load_machine(lab::calibration_path(true))) return *kept;
  for (const lab::Machine& machine : lab::known_machines())
    if (device.find(machine.name) != std::string::npos) return machine;
  return *lab::machine_named("H100");
}

llm::EngineFlags settled(const llm::Session& session, llm::EngineFlags flags) {
  const llm::EngineSetup& setup = session.setup();
  flags.max_seqs = setup.scheduler.max_seqs;
  flags.max_step_tokens = setup.scheduler.max_step_tokens;
  flags.block_size = setup.kv_manager.block_size;
  flags.context = setup.context;
  flags.kv_tokens = setup.kv_tokens;
  flags.kv_type = setup.executor.memory.type;
  flags.swap_tokens = flags.disk_tokens = 0;
  flags.preemption = sched::Preemption::Recompute;
  flags.prefix_cache = false;
  flags.kv_cache = true;
  flags.speculate = "off";
  return flags;
}

class ServedPlanner : public api::Planner {
 public:
  ServedPlanner(const llm::Session& session, const llm::EngineFlags& flags)
      : session_(session),
        flags_(settled(session, flags)),
        machine_(machine_of(*session.model().backend)),
        sheet_(sheet_with({})) {}

  Result<json::object> plan(const api::PlanQuestion& question) const override {
    lab::Machine machine = machine_;
    if (!question.device.empty()) {
      Result<lab::Machine> named = lab::machine_named(question.device);
      if (!named) return named.error();
      machine = std::move(*named);
    }
    std::optional<DType> weights;
    if (!question.weights.empty()) {
      const auto found = std::find_if(std::begin(kOffered), std::end(kOffered),
                                      [&](DType type) { return name(type) == question.weights; });
      if (found == std::end(kOffered))
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("weights '{}' are not one of BF16, Q8_0, Q6_K, Q4_K", question.weights)};
      weights = *found;
    }
    const int context = std::min(question.context > 0 ? question.context : kUsualContext,
                                 std::max(1, session_.setup().context));
    json::object out = lab::what_if_json(weights ? sheet_with(weights) : sheet_, machine,
                                         std::max(1, question.batch), context);
    out["choices"] = choices();
    return out;
  }

  Result<json::object> play(const std::vector<api::RecordedRequest>& requests,
                            Interrupt* interrupt) const override {
    std::vector<lab::ListedRequest> listed;
    for (const api::RecordedRequest& one : requests)
      listed.push_back({.at = one.at, .input = one.input, .output = one.output});
    std::stable_sort(listed.begin(), listed.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
    return lab::play_schemes(lab::CostModel(sheet_, machine_), flags_, listed, interrupt);
  }

 private:
  static constexpr int kUsualContext = 1024;

  lab::ModelSheet sheet_with(std::optional<DType> weights) const {
    return lab::make_sheet(session_.model().files,
                           {.weights = weights, .kv_type = session_.setup().executor.memory.type});
  }

  json::object choices() const {
    json::array weights, devices;
    for (const DType type : kOffered) weights.push_back(json::string(name(type)));
    for (const lab::Machine& machine : lab::known_machines()) devices.push_back(json::string(machine.name));
    return {{"weights", std::move(weights)},
            {"stored", name(sheet_.weights)},
            {"devices", std::move(devices)},
            {"max_seqs", flags_.max_seqs},
            {"context", session_.setup().context}};
  }

  const llm::Session& session_;
  const llm::EngineFlags flags_;
  const lab::Machine machine_;
  const lab::ModelSheet sheet_;
};

}  // namespace

std::unique_ptr<api::Planner> make_served_planner(const llm::Session& session,
                                                  const llm::EngineFlags& flags) {
  return std::make_unique<ServedPlanner>(session, flags);
}

}  // namespace sluice::cli
