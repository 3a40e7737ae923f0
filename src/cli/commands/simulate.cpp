// sluice simulate: a load through the real scheduler in virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/lab/fleet_policy.h"
#include "cli/lab/load_flags.h"
#include "cli/lab/machine_choice.h"
#include "lab/plan/planner.h"
#include "lab/sim/measured_run.h"
#include "lab/sim/simulate.h"
#include "llm/engine_flags.h"
#include "llm/model_store.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/model_executor.h"

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
    options.add(replicas_, "replicas", "of the machine").within(1, 4096);
    options.add_choice<FleetPolicy>(policy_, "policy",
                                    "which replica gets a request: that with the fewest, by turns, by a "
                                    "consistent hash of its beginning, "
                                    "or as 'sluice route' has it",
                                    {{"fewest", FleetPolicy::Fewest},
                                     {"round-robin", FleetPolicy::RoundRobin},
                                     {"hash", FleetPolicy::Hash},
                                     {"prefix", FleetPolicy::Prefix}});
    options.add(cut_.tensor, "tp", "tensor parallel: devices of a replica that share each layer")
        .within(1, 1024);
    options
        .add(cut_.stages, "pp",
             "pipeline parallel: stages of a replica, of as many devices each as --tp says")
        .within(1, 1024);
    options.add(weights_, "weights", "type of the weights in place of the file's own: BF16, Q8_0, Q4_K ...")
        .shown_as("TYPE");
    load_.declare(options);
    options.add(verify_, "verify",
                "run the same load on the model here as well, in the time of its steps, and print both; this "
                "machine is measured beside it");
    options.add(cpu_time_, "cpu-time",
                "--verify in the processor's time of one thread, for a machine that others use as well");
    options.add(output_, "output", "write the report as JSON").shown_as("FILE");
    options.add(html_, "html", "write the report as a page").shown_as("FILE");
    engine_.declare(options);
  }

  int run() override {
    Result<lab::WorkloadOptions> workload = load_.resolve();
    if (!workload) return report(workload.error());
    const Result<lab::ServiceLimits> limits = load_.limits();
    if (!limits) return report(limits.error());
    if (cpu_time_) engine_.device.threads = 1;  // others would spin while they wait for each other
    Result<lab::Machine> machine =
        choose_machine(engine_.device.device == "auto" ? (verify_ ? "this" : "") : engine_.device.device);
    if (!machine) return report(machine.error());
    if (verify_ && !machine->measured())
      return report({ErrorCode::InvalidArgument,
                     fmt::format("--verify runs on this machine, not on a {}", machine->name)});
    Result<models::ModelFiles> files = outline_of(model_.empty() ? by_flag_ : model_);
    if (!files) return report(files.error());
    lab::SheetOptions sheet;
    sheet.kv_type = engine_.kv_type.value_or(machine->host_link > 0 ? DType::BF16 : DType::F16);
    if (Status status = read_weights(sheet); !status) return report(status.error());
    const lab::CostModel model(lab::make_sheet(*files, sheet), std::move(*machine), cut_);
    Result<lab::SimulateOptions> options = settle(model);
    if (!options) return report(options.error());
    workload->vocab = std::min(workload->vocab, files->spec.vocab);
    workload->first_token = std::min(workload->first_token, workload->vocab / 2);
    if (verify_) return verify(model, *workload, *options);
    const TimePoint start = Clock::now();
    lab::Workload requests(*workload);
    const std::unique_ptr<lab::ReplicaPolicy> policy = make_fleet_policy(policy_);
    options->policy = policy.get();
    lab::SimulateResult result = lab::simulate(model, requests, *options);
    const double taken = seconds_since(start);
    result.load.label = fmt::format("{} x {} (simulated)", replicas_, model.machine_text());
    result.load.backend = "simulation";
    result.load.model = model.sheet().name;
    result.load.limits = *limits;
    result.load.request_rate = load_.rate;
    result.load.concurrency = workload->concurrency;
    result.load.settings = {{"simulated_in_s", taken},
                            {"steps", result.steps},
                            {"preempted", result.preempted},
                            {"cached_tokens", result.cached_tokens},
                            {"prompt_tokens", result.prompt_tokens},
                            {"imbalance", result.imbalance},
                            {"padding_share", 1 - result.run_tokens / std::max(1.0, result.computed_tokens)},
                            {"max_seqs", options->engine.scheduler.max_seqs},
                            {"max_step_tokens", options->engine.scheduler.max_step_tokens},
                            {"replicas", replicas_}};
    if (Status status = write_load_report(lab::load_json(result.load), output_, html_); !status)
      return report(status.error());
    fmt::print("{} steps, {} preemptions, simulated in {:.2f} s\n", result.steps, result.preempted, taken);
    fmt::print("prefilled {:.0f} of {:.0f} prompt tokens; most requests of a replica {:.2f} times the mean\n",
               result.prompt_tokens - result.cached_tokens, result.prompt_tokens, result.imbalance);
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
  Result<lab::SimulateOptions> settle(const lab::CostModel& model) {
    llm::EngineFlags flags = engine_;
    const bool gpu = model.machine().host_link > 0;
    if (flags.max_seqs == 0) flags.max_seqs = gpu ? 256 : 32;
    if (flags.max_step_tokens == 0)
      flags.max_step_tokens =
          llm::default_step_tokens(gpu, models::active_parameter_count(model.sheet().spec));
    if (flags.block_size == 0) flags.block_size = gpu ? 64 : 16;
    flags.kv_type = model.sheet().kv_type;
    if (flags.kv_tokens == 0) {
      const double room = lab::make_plan(model.sheet(), model.machine(), {.cut = cut_}).fitting_tokens;
      if (room < flags.block_size)
        return Error{ErrorCode::Unavailable, fmt::format("the weights of '{}' leave no room for KV on {}",
                                                         model.sheet().name, model.machine_text())};
      const double most = double(model.sheet().spec.context) * flags.max_seqs;
      flags.kv_tokens = static_cast<int>(std::min({room, most, double(kMostKvTokens)}));
    }
    Result<llm::EngineSetup> setup = llm::make_setup(flags, model.sheet().spec, model.sheet().name, {});
    if (!setup) return setup.error();
    executor_ = setup->executor;
    lab::SimulateOptions out;
    out.replicas = replicas_;
    out.engine = {.scheduler = setup->scheduler,
                  .kv_manager = setup->kv_manager,
                  .queue = {.requests = size_t{1} << 40, .tokens = size_t{1} << 50, .bytes = size_t{1} << 60},
                  .vocab = model.sheet().spec.vocab};
    return out;
  }

  Result<std::unique_ptr<models::Model>> load_here() const {
    runtime::DeviceOptions device = engine_.device;
    device.device = "cpu";
    Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(device);
    if (!backend) return backend.error();
    Result<std::string> path = llm::resolve_model(model_.empty() ? by_flag_ : model_);
    if (!path) return path.error();
    Result<models::ModelFiles> files = models::open_model(*path);
    if (!files) return files.error();
    return models::load_model(std::move(*files), *backend);
  }

  int verify(const lab::CostModel& planned, const lab::WorkloadOptions& load, lab::SimulateOptions options) {
    if (replicas_ > 1 || cut_.devices() > 1)
      return report({ErrorCode::InvalidArgument, "--verify has one replica, this machine"});
    Result<std::unique_ptr<models::Model>> model = load_here();
    if (!model) return report(model.error());
    Result<std::unique_ptr<runtime::ModelExecutor>> executor =
        runtime::ModelExecutor::make(**model, nullptr, executor_);
    if (!executor) return report(executor.error());
    const lab::TimeSource time = cpu_time_ ? lab::TimeSource::Processor : lab::TimeSource::Wall;
    lab::CalibrateOptions beside = lab::options_for(planned.sheet(), **model);
    beside.time = time;
    beside.turns = kVerifyTurns;
    lab::Calibration calibration(*(*model)->backend, std::move(beside));
    options.executor = [&](lab::VirtualClock& clock) {
      return std::make_unique<lab::TimedExecutor>(**executor, clock, time, &calibration);
    };
    lab::Workload requests(load), again(load);
    const json::object measured = lab::load_json(lab::simulate(planned, requests, options).load);
    lab::Machine machine = planned.machine();
    calibration.apply(machine);
    options.executor = nullptr;
    const lab::CostModel cost(planned.sheet(), std::move(machine));
    const json::object simulated = lab::load_json(lab::simulate(cost, again, options).load);
    fmt::print("{}", lab::compared_text(lab::compare_loads(simulated, measured)));
    return kSuccess;
  }

  std::string model_, by_flag_, output_, html_, weights_;
  int replicas_ = 1;
  FleetPolicy policy_ = FleetPolicy::Fewest;
  lab::DeviceCut cut_;
  bool verify_ = false, cpu_time_ = false;
  runtime::ExecutorOptions executor_;  // of the settled flags
  LoadFlags load_;
  llm::EngineFlags engine_;
};

}  // namespace

std::unique_ptr<Command> make_simulate() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace sluice::cli
