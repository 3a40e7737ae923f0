// What each switch, or another machine, would change of a plan.
#include <fmt/format.h>

#include <cmath>

#include "lab/plan/planner.h"

namespace sluice::lab {

namespace {

// A variant of the reference: another model, machine, prompt or way to run it.
struct Variant {
  std::string name;
  CostModel model;
  double price = 0;
  double prompt = 0;           // tokens that are computed
  double cached = 0;           // tokens before them that are known
  double context = 0;          // while decoding
  double tokens_per_step = 1;  // of each sequence
  double step_rows = 1;        // of each sequence, in a step
  double throughput_factor = 1;
};

class Changes {
 public:
  explicit Changes(const Plan& plan) : plan_(plan), base_(plan.reference) {}

  Variant same(std::string name) const {
    return {.name = std::move(name),
            .model = plan_.model,
            .price = plan_.price,
            .prompt = double(base_.context),
            .context = double(base_.context)};
  }
  Variant with_weights(std::string name, DType type) const {
    Variant out = same(std::move(name));
    ModelSheet sheet = plan_.model.sheet();
    const double size = double(info(type).block_bytes) / info(type).block_elements;
    sheet.stored_bytes *= size / sheet.bytes_per_weight;
    sheet.weights = sheet.output_type = type;
    sheet.bytes_per_weight = sheet.bytes_per_output = size;
    out.model = CostModel(std::move(sheet), plan_.model.machine(), plan_.model.cut());
    return out;
  }

  PlanChange settle(const Variant& v) const {
    PlanChange out{.name = v.name};
    const Machine& machine = v.model.machine();
    out.ttft = v.model.prompt_seconds(v.prompt, v.cached, plan_step_tokens(plan_.options, v.model));
    const double step = v.model.token_seconds(base_.batch * v.step_rows, base_.batch * v.step_rows) +
                        base_.batch * v.model.attention_seconds(v.step_rows, v.context);
    out.tpot = step / v.tokens_per_step;
    out.throughput = base_.batch / out.tpot * v.throughput_factor;
    out.cost = cost_of_million(v.price, out.throughput);
    out.fits = v.model.device_weights() + base_.batch * v.model.device_kv(v.context) <=
               machine.memory * plan_.options.memory_share;
    return out;
  }

 private:
  const Plan& plan_;
  const PlanCell& base_;
};

// Drafts that are accepted one after the other, and the token that follows them.
double accepted_tokens(int drafts, double acceptance) {
  double sum = 1, reached = 1;
  for (int i = 0; i < drafts; ++i) sum += reached *= acceptance;
  return sum;
}

bool is_narrower(DType type, const ModelSheet& sheet) {
  return double(info(type).block_bytes) / info(type).block_elements < sheet.bytes_per_weight - 1e-9;
}

}  // namespace

std::vector<PlanChange> plan_changes(const Plan& plan) {
  const Changes make(plan);
  const PlanOptions& options = plan.options;
  const ModelSheet& sheet = plan.model.sheet();
  std::vector<Variant> variants{make.same("as planned")};
  for (const DType type : {DType::Q8_0, DType::Q4_K})
    if (is_narrower(type, sheet))
      variants.push_back(make.with_weights(fmt::format("weights in {}", sluice::name(type)), type));
  if (info(sheet.kv_type).block_bytes > 1) {
    Variant kv = make.same("KV cache in 8 bits");
    ModelSheet narrow = sheet;
    narrow.kv_type = DType::I8;
    kv.model = CostModel(std::move(narrow), plan.model.machine(), plan.model.cut());
    variants.push_back(std::move(kv));
  }
  Variant cached = make.same(fmt::format("prompt caching, {:.0f} % hit", options.hit_rate * 100));
  cached.cached = cached.prompt * options.hit_rate;
  cached.prompt -= cached.cached;
  variants.push_back(std::move(cached));
  Variant compressed = make.same(fmt::format("prompts compressed to {:.0f} %", options.compression * 100));
  compressed.prompt = compressed.context = compressed.prompt * options.compression;
  variants.push_back(std::move(compressed));
  Variant speculated = make.same(
      fmt::format("speculation, {} drafts, {:.0f} % accepted", options.drafts, options.acceptance * 100));
  speculated.step_rows = options.drafts + 1;
  speculated.tokens_per_step = accepted_tokens(options.drafts, options.acceptance);
  variants.push_back(std::move(speculated));
  Variant tensor = make.same(fmt::format("tensor parallel x{}", options.devices));
  const DeviceCut cut = plan.model.cut();
  tensor.model = CostModel(sheet, plan.model.machine(), {cut.tensor * options.devices, cut.stages});
  tensor.price *= options.devices;
  variants.push_back(std::move(tensor));
  Variant pipeline = make.same(fmt::format("pipeline parallel x{}", options.devices));
  pipeline.model = CostModel(sheet, plan.model.machine(), {cut.tensor, cut.stages * options.devices});
  pipeline.price *= options.devices;
  pipeline.throughput_factor = options.devices;  // each stage has a batch of its own
  variants.push_back(std::move(pipeline));
  for (const Machine& machine : known_machines()) {
    if (machine.name == plan.model.machine().name) continue;
    Variant other = make.same(machine.name);
    other.model = CostModel(sheet, machine, cut);
    other.price = machine.price * cut.devices();
    variants.push_back(std::move(other));
  }
  std::vector<PlanChange> out;
  out.reserve(variants.size());
  for (const Variant& variant : variants) out.push_back(make.settle(variant));
  return out;
}

}  // namespace sluice::lab
