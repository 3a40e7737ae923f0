// sluice simulate: a load through the real scheduler in virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/load_flags.h"
#include "cli/machine_choice.h"
#include "lab/plan/planner.h"
#include "lab/sim/simulate.h"
#include "llm/engine_flags.h"

namespace sluice::cli {

namespace {

constexpr int kMostKvTokens = 1 << 26;

class SimulateCommand : public Command {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view summary() const override {
    return "run a load through the real scheduler in virtual time, on this machine or on replicas of another";
  }
  std::string_view examples() const override {
    return "sluice simulate config.json --device H200 --replicas 4 --request-rate 40 --num-prompts 100000 "
           "--input-len lognormal:1000:0.8 --output-len lognormal:200:0.6 --slo ttft:500ms,tpot:40ms --html "
           "sim.html";
  }

  void declare(OptionSet& options) override {
    options.add(model_, "MODEL", "config.json, file, folder or name; the default model where left out")
        .at_position(false);
    options.add(by_flag_, "model", "the same by flag, as other verbs take it")
        .short_name('m')
        .shown_as("MODEL");
    options.add(replicas_, "replicas", "of the machine; a request goes to the one with the fewest")
        .within(1, 4096);
    options.add(weights_, "weights", "type of the weights in place of the file's own: BF16, Q8_0, Q4_K ...")
        .shown_as("TYPE");
    load_.declare(options);
    options.add(output_, "output", "write the report as JSON").shown_as("FILE");
    options.add(html_, "html", "write the report as a page").shown_as("FILE");
    engine_.declare(options);
  }

  int run() override {
    Result<lab::WorkloadOptions> workload = load_.resolve();
    if (!workload) return report(workload.error());
    const Result<lab::ServiceLimits> limits = load_.limits();
    if (!limits) return report(limits.error());
    Result<lab::Machine> machine =
        choose_machine(engine_.device.device == "auto" ? "" : engine_.device.device);
    if (!machine) return report(machine.error());
    Result<models::ModelFiles> files = outline_of(model_.empty() ? by_flag_ : model_);
    if (!files) return report(files.error());
    lab::SheetOptions sheet;
    sheet.kv_type = engine_.kv_type.value_or(machine->host_link > 0 ? DType::BF16 : DType::F16);
    if (Status status = read_weights(sheet); !status) return report(status.error());
    const lab::CostModel model(lab::make_sheet(*files, sheet), std::move(*machine));
    Result<lab::SimulateOptions> options = settle(model);
    if (!options) return report(options.error());
    workload->vocab = std::min(workload->vocab, files->spec.vocab);
    workload->first_token = std::min(workload->first_token, workload->vocab / 2);
    const TimePoint start = Clock::now();
    lab::Workload requests(*workload);
    lab::SimulateResult result = lab::simulate(model, requests, *options);
    const double taken = seconds_since(start);
    result.load.label = fmt::format("{} x {} (simulated)", replicas_, model.machine().name);
    result.load.backend = "simulation";
    result.load.model = model.sheet().name;
    result.load.limits = *limits;
    result.load.request_rate = load_.rate;
    result.load.concurrency = workload->concurrency;
    result.load.settings = {{"simulated_in_s", taken},
                            {"steps", result.steps},
                            {"preempted", result.preempted},
                            {"cached_tokens", result.cached_tokens},
                            {"padding_share", 1 - result.run_tokens / std::max(1.0, result.computed_tokens)},
                            {"max_seqs", options->engine.scheduler.max_seqs},
                            {"max_step_tokens", options->engine.scheduler.max_step_tokens},
                            {"replicas", replicas_}};
    if (Status status = write_load_report(lab::load_json(result.load), output_, html_); !status)
      return report(status.error());
    fmt::print("{} steps, {} preemptions, simulated in {:.2f} s\n", result.steps, result.preempted, taken);
    return kSuccess;
  }

 private:
  Status read_weights(lab::SheetOptions& sheet) const {
    if (weights_.empty()) return {};
    for (const DTypeInfo& type : kDTypes)
      if (type.name == weights_) sheet.weights = type.type;
    if (sheet.weights) return {};
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--weights '{}' is not a type such as BF16, F8_E4M3, Q8_0 or Q4_K", weights_)};
  }

  // What the engine's flags leave to the device.
  Result<lab::SimulateOptions> settle(const lab::CostModel& model) const {
    llm::EngineFlags flags = engine_;
    const bool gpu = model.machine().host_link > 0;
    if (flags.max_seqs == 0) flags.max_seqs = gpu ? 256 : 32;
    if (flags.max_step_tokens == 0) flags.max_step_tokens = gpu ? 8192 : 512;
    if (flags.block_size == 0) flags.block_size = gpu ? 64 : 16;
    flags.kv_type = model.sheet().kv_type;
    if (flags.kv_tokens == 0) {
      const double room = lab::make_plan(model.sheet(), model.machine(), {}).fitting_tokens;
      if (room < flags.block_size)
        return Error{ErrorCode::Unavailable, fmt::format("the weights of '{}' leave no room for KV on {}",
                                                         model.sheet().name, model.machine().name)};
      const double most = double(model.sheet().spec.context) * flags.max_seqs;
      flags.kv_tokens = static_cast<int>(std::min({room, most, double(kMostKvTokens)}));
    }
    Result<llm::EngineSetup> setup = llm::make_setup(flags, model.sheet().spec, model.sheet().name, {});
    if (!setup) return setup.error();
    lab::SimulateOptions out;
    out.replicas = replicas_;
    out.engine = {.scheduler = setup->scheduler,
                  .kv_manager = setup->kv_manager,
                  .queue = {.requests = size_t{1} << 40, .tokens = size_t{1} << 50, .bytes = size_t{1} << 60},
                  .vocab = model.sheet().spec.vocab};
    return out;
  }

  std::string model_, by_flag_, output_, html_, weights_;
  int replicas_ = 1;
  LoadFlags load_;
  llm::EngineFlags engine_;
};

}  // namespace

std::unique_ptr<Command> make_simulate() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace sluice::cli
