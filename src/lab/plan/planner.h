// What a model will do on a machine before it runs there: what fits, how fast it is, what limits it, what it costs, and
// what a change would bring.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/plan/cost_model.h"

namespace sluice::lab {

struct PlanOptions {
  DeviceCut cut;  // devices that have the model together
  std::vector<int> batches{1, 4, 16, 64};
  std::vector<int> contexts{128, 1024, 4096};
  int step_tokens = 0;          // 0: 8192 on devices of their own, 512 on hosts
  std::optional<double> price;  // of an hour, in place of the machine's
  double memory_share = 0.9;    // of the memory, for weights and KV
  // The what-ifs.
  double hit_rate = 0.5;     // of a prompt, found in the prefix cache
  double compression = 0.5;  // of a prompt that is left
  int devices = 2;           // in the place of each one
  int drafts = 4;            // of a speculated step
  double acceptance = 0.7;   // of each draft
};

struct PlanCell {
  int batch = 1, context = 0;
  bool fits = true;
  double ttft = 0;   // seconds, of one prompt of that length on an idle machine
  double tpot = 0;   // seconds between tokens
  double floor = 0;  // of tpot, by the limits alone
  Bound bound = Bound::Memory;
  double cost = 0;  // of a million generated tokens; 0: no price

  double throughput() const { return batch / tpot; }  // tokens a second
};

// A step with each operation, for the roofline.
struct PlannedPhase {
  std::string name;
  StepShape shape;
  std::vector<PlannedOperation> operations;
  double seconds = 0;
};

struct ContextRoom {
  int context = 0;
  double kv_bytes = 0;  // of one sequence
  int64_t largest_batch = 0;
  std::optional<int> compute_bound_from;  // batch; absent: reading KV always takes longer
};

struct PlanChange {
  std::string name;
  double ttft = 0, tpot = 0;  // of the reference cell
  double throughput = 0;
  double cost = 0;  // of a million generated tokens
  bool fits = true;
};

struct Plan {
  CostModel model;
  PlanOptions options;
  double price = 0;           // of all devices
  double fitting_tokens = 0;  // positions of KV beside the weights
  std::vector<ContextRoom> rooms;
  std::vector<PlanCell> cells;
  std::vector<PlannedPhase> phases;
  PlanCell reference;  // of the changes: the middle context, the largest listed batch that fits
  std::vector<PlanChange> changes;
  double weights_over_link = 0;  // seconds; 0: there is no link
  double kv_over_link = 0;       // of a sequence of the reference
  double kv_again = 0;           // computing the same instead
};

Plan make_plan(ModelSheet sheet, Machine machine, const PlanOptions& options);
std::vector<PlanChange> plan_changes(const Plan& plan);

std::string plan_text(const Plan& plan);
std::string plan_words(const Plan& plan);  // the same explained
json::object plan_json(const Plan& plan);
// A member of its "cells".
json::object cell_json(const PlanCell& cell);
std::string plan_html(const Plan& plan);

// Tokens of the largest step: what is asked for, else what the engine takes for the model on such a machine.
int plan_step_tokens(const PlanOptions& options, const CostModel& model);
// Of a million tokens at a price of an hour.
double cost_of_million(double price, double tokens_per_second);

}  // namespace sluice::lab
