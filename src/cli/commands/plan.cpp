// sluice plan: what a model will do on a machine, before it runs there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/system/cores.h"
#include "base/system/terminal.h"
#include "cli/command.h"
#include "cli/lab/lists.h"
#include "cli/lab/machine_choice.h"
#include "lab/device/device_calibrate.h"
#include "lab/device/engine_run.h"
#include "lab/device/engine_verify.h"
#include "lab/html/page.h"
#include "lab/plan/calibrate.h"
#include "lab/plan/planner.h"
#include "lab/plan/verify.h"
#include "llm/engine_flags.h"
#include "llm/model_store.h"
#include "runtime/device.h"

namespace sluice::cli {

namespace {

class PlanCommand : public Command {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view summary() const override {
    return "predict what fits, how fast it runs and what it costs, on this machine or another";
  }
  std::string_view examples() const override {
    return "sluice plan --calibrate\nsluice plan config.json --device H200 --explain --html plan.html\n"
           "sluice plan MODEL --device 'RTX 4090' --weights Q4_K --batch 1,8,32 --context 512,8192 --price "
           "0.4";
  }

  void declare(OptionSet& options) override {
    options.add(model_, "MODEL", "config.json, file, folder or name; the default model where left out")
        .at_position(false);
    options.add(by_flag_, "model", "the same by flag, as other verbs take it")
        .short_name('m')
        .shown_as("MODEL");
    options
        .add(
            device_, "device",
            "H100, H200, B200, A100, L40S, RTX 4090, RTX 5090, M3 Max, EPYC, a profile's file, or what "
            "--calibrate measured: 'this' (the processor, the default where it is there) or 'cuda' (the GPU)")
        .shown_as("PROFILE");
    options.add(
        calibrate_, "calibrate",
        "measure this machine's processor, or with --device cuda its GPU, first and keep its profile");
    options.add(
        verify_, "verify",
        "run the model here and print every prediction beside its measurement; with --calibrate, this "
        "machine is measured anew beside every cell");
    options.add(explain_, "explain", "say it in words");
    options.add(html_, "html", "write it as a page with plots").shown_as("FILE");
    options.add(json_, "json", "print JSON");
    options.add(batches_, "batch", "sequences at once").shown_as("LIST");
    options.add(contexts_, "context", "tokens of a sequence").shown_as("LIST");
    options.add(plan_.price, "price", "of an hour of the device").within(0, 1e6);
    options.add(weights_, "weights", "type of the weights in place of the file's own: BF16, Q8_0, Q4_K ...")
        .shown_as("TYPE");
    llm::declare_kv_type(options, kv_type_, "type of the KV cache; auto: f16, on a GPU bf16");
    options.add(plan_.step_tokens, "max-step-tokens", "tokens of one step; 0: by the device")
        .within(0, 1 << 20);
    options.add(plan_.hit_rate, "hit-rate", "share of prompts that a prefix cache holds").within(0, 1);
    options.add(plan_.compression, "compression", "share of prompts that compression leaves").within(0.01, 1);
    options.add(plan_.cut.tensor, "tp", "tensor parallel: devices that share each layer").within(1, 1024);
    options.add(plan_.cut.stages, "pp", "pipeline parallel: stages, of as many devices each as --tp says")
        .within(1, 1024);
    options.add(plan_.devices, "devices", "of tensor and pipeline parallelism").within(1, 1024);
    options.add(plan_.drafts, "drafts", "tokens of a speculated step").within(0, 64);
    options.add(plan_.acceptance, "acceptance", "share of drafts that are accepted").within(0, 1);
    options.add(threads_, "threads", "of --calibrate and --verify; 0: as other verbs have them")
        .within(0, 4096);
    options.add(cpu_time_, "cpu-time",
                "measure the processor's time with one thread, for a machine that others use as well");
    options.add(repeat_, "repeat", "measurements of each cell by --verify; the median counts")
        .within(1, 1000);
  }

  int run() override {
    Status status = read_flags();
    if (!status) return report(status.error());
    if (cpu_time_) threads_ = 1;  // others would spin while they wait for each other
    Result<lab::Machine> machine = calibrate_ ? measure_this() : choose_machine(device_);
    if (!machine) return report(machine.error());
    Result<models::ModelFiles> files = outline_of(reference());
    if (!files) return report(files.error());
    sheet_.kv_type = kv_type_.value_or(machine->host_link > 0 ? DType::BF16 : DType::F16);
    lab::ModelSheet sheet = lab::make_sheet(*files, sheet_);
    if (calibrate_) status = measure_model(*machine, sheet, files->tensors.size() > 0);
    if (!status) return report(status.error());
    const lab::Plan plan = lab::make_plan(std::move(sheet), std::move(*machine), plan_);
    if (!html_.empty()) {
      status = lab::write_text_file(html_, lab::plan_html(plan));
      if (!status) return report(status.error());
    }
    if (verify_) return verify(plan);
    const std::string text = json_      ? write_json(lab::plan_json(plan)) + "\n"
                             : explain_ ? lab::plan_words(plan)
                                        : lab::plan_text(plan);
    fmt::print("{}", shown_on(STDOUT_FILENO, text));
    return kSuccess;
  }

 private:
  Status read_flags() {
    Result<std::vector<int>> batches = read_list(batches_, "batch", 1);
    if (!batches) return batches.error();
    Result<std::vector<int>> contexts = read_list(contexts_, "context", 1);
    if (!contexts) return contexts.error();
    if (batches->empty() || contexts->empty())
      return Error{ErrorCode::InvalidArgument, "--batch and --context must have numbers"};
    plan_.batches = std::move(*batches);
    plan_.contexts = std::move(*contexts);
    if (weights_.empty()) return {};
    for (const DTypeInfo& type : kDTypes)
      if (type.name == weights_) sheet_.weights = type.type;
    if (!sheet_.weights)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--weights '{}' is not a type such as BF16, F8_E4M3, Q8_0 or Q4_K", weights_)};
    return {};
  }

  lab::TimeSource time_source() const {
    return cpu_time_ ? lab::TimeSource::Processor : lab::TimeSource::Wall;
  }

  const std::string& reference() const { return model_.empty() ? by_flag_ : model_; }
  bool gpu() const { return names_gpu(device_); }

  Result<std::shared_ptr<kernels::Backend>> make_backend() const {
    runtime::DeviceOptions options;
    options.device = gpu() ? device_ : "cpu";
    options.threads = threads_;
    return runtime::make_backend(options);
  }

  static void show(const std::string& what) {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "{}\n", what);
  }

  Status keep(const lab::Machine& machine) const {
    return lab::save_machine(machine, lab::calibration_path(gpu()));
  }

  // The comparison measures all that it needs beside its cells: a profile that is there will do for the rest.
  Result<lab::Machine> measure_this() const {
    if (verify_ && !gpu())
      if (Result<lab::Machine> kept = lab::load_machine(lab::calibration_path())) return kept;
    Result<std::shared_ptr<kernels::Backend>> backend = make_backend();
    if (!backend) return backend.error();
    const auto progress = [](const std::string& what) { show("measuring " + what); };
    lab::CalibrateOptions options;
    options.threads = threads_ > 0 ? threads_ : compute_cores().threads;
    options.time = time_source();
    lab::Machine machine =
        gpu() ? lab::calibrate_device(**backend, {}, progress) : lab::calibrate(**backend, options, progress);
    if (Status saved = keep(machine); !saved) return saved.error();
    fmt::print(stderr, "profile kept in {}\n", lab::calibration_path(gpu()));
    return machine;
  }

  // The model where it is measured, and on a GPU the engine around it, which warms the device up as a server does.
  Status load(const lab::ModelSheet& sheet) {
    if (loaded_) return {};
    Result<std::shared_ptr<kernels::Backend>> backend = make_backend();
    if (!backend) return backend.error();
    Result<std::string> path = llm::resolve_model(reference());
    if (!path) return path.error();
    Result<models::ModelFiles> files = models::open_model(*path);
    if (!files) return files.error();
    Result<std::unique_ptr<models::Model>> model = models::load_model(std::move(*files), *backend);
    if (!model) return model.error();
    loaded_ = std::move(*model);
    if (!gpu()) return {};
    show("warming up");
    lab::EngineRunOptions options;
    options.flags.kv_type = sheet.kv_type;
    options.flags.max_step_tokens = plan_.step_tokens;
    options.sequences = *std::max_element(plan_.batches.begin(), plan_.batches.end());
    options.context = *std::max_element(plan_.contexts.begin(), plan_.contexts.end());
    Result<std::unique_ptr<lab::EngineRun>> run = lab::EngineRun::make(*loaded_, options);
    if (!run) return run.error();
    engine_ = std::move(*run);
    return {};
  }

  // The profile then has the shapes of the model as well, and steps of its layers where its weights are there.
  Status measure_model(lab::Machine& machine, const lab::ModelSheet& sheet, bool has_weights) {
    if (verify_ && !gpu()) return {};  // it is measured beside its cells
    if (!gpu()) {
      Result<std::shared_ptr<kernels::Backend>> backend = make_backend();
      if (!backend) return backend.error();
      lab::CalibrateOptions options = lab::options_for(sheet);
      options.time = time_source();
      lab::calibrate_for(machine, **backend, options);
    }
    if (has_weights && !sheet_.weights) {
      if (Status status = load(sheet); !status) return status;
      show("measuring steps of the model's layers");
      lab::CalibrateOptions options = lab::options_for(sheet, *loaded_);
      options.time = time_source();
      if (options.model != nullptr) lab::calibrate_for(machine, *loaded_->backend, options);
    }
    return keep(machine);
  }

  // Null without --calibrate.
  std::unique_ptr<lab::Calibration> beside(const lab::ModelSheet& sheet) const {
    if (!calibrate_) return nullptr;
    lab::CalibrateOptions options = lab::options_for(sheet, *loaded_);
    options.time = time_source();
    return std::make_unique<lab::Calibration>(*loaded_->backend, std::move(options));
  }

  int verify(const lab::Plan& plan) {
    if (!plan.model.machine().measured())
      return report(
          {ErrorCode::InvalidArgument, "--verify compares with this machine: --calibrate it first"});
    if (Status status = load(plan.model.sheet()); !status) return report(status.error());
    lab::Machine machine = plan.model.machine();
    const auto cells = gpu() ? lab::verify_engine(plan, *engine_, repeat_, show) : verify_here(plan, machine);
    if (!cells) return report(cells.error());
    fmt::print(json_ ? stderr : stdout, "{}", lab::verify_text(*cells));
    if (json_) fmt::print("{}\n", write_json(lab::verify_json(*cells, machine)));
    return kSuccess;
  }

  // `machine` gets what was measured beside the cells.
  Result<std::vector<lab::VerifiedCell>> verify_here(const lab::Plan& plan, lab::Machine& machine) const {
    lab::VerifyOptions options;
    options.repeat = repeat_;
    options.time = time_source();
    const std::unique_ptr<lab::Calibration> calibration = beside(plan.model.sheet());
    options.calibration = calibration.get();
    auto cells = lab::verify_plan(plan, *loaded_, options, show);
    if (calibration) calibration->apply(machine);
    return cells;
  }

  std::string model_, by_flag_, device_, html_, weights_;
  std::string batches_ = "1,4,16,64", contexts_ = "128,1024,4096";
  lab::PlanOptions plan_;
  lab::SheetOptions sheet_;
  std::optional<DType> kv_type_;
  std::unique_ptr<models::Model> loaded_;
  std::unique_ptr<lab::EngineRun> engine_;
  bool calibrate_ = false, verify_ = false, explain_ = false, json_ = false, cpu_time_ = false;
  int threads_ = 0, repeat_ = 3;
};

}  // namespace

std::unique_ptr<Command> make_plan() {
  return std::make_unique<PlanCommand>();
}

}  // namespace sluice::cli
