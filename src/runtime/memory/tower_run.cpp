#include "runtime/memory/tower_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::runtime {

void TowerRun::begin_step(double seconds) {
  start_ = Clock::now();
  is_parted_ = std::isfinite(seconds);
  budget_.begin_step(is_parted_ ? seconds : 0);
}

double TowerRun::end_step() {
  budget_.end_step(running());
  return seconds_since(start_);
}

void TowerRun::begin(Images images) {
  std::vector<models::VisionTower::Tile> tiles;
  tiles.reserve(images.size());
  for (const auto& image : images) tiles.push_back({image->rgb.data(), image->width, image->height});
  images_ = std::move(images);
  pass_ = tower_.begin(tiles);
}

TowerRun::State TowerRun::advance() {
  const models::VisionTower::Part next = tower_.next_part(*pass_);
  const TimePoint begin = Clock::now();
  const int64_t fitting =
      is_parted_ ? budget_.next(pace_, next.kind, seconds_between(start_, begin)) : next.tokens;
  if (fitting == 0) return State::OutOfTime;
  const bool is_done = tower_.advance(*pass_, fitting);
  budget_.note_part();
  if (is_parted_) pace_.note(next.kind, std::min(fitting, next.tokens), seconds_since(begin));
  return is_done ? State::Done : State::Runs;
}

std::vector<kernels::Memory> TowerRun::finish() {
  return tower_.finish(*pass_);
}

void TowerRun::drop() {
  pass_.reset();
  images_.clear();
}

void TowerRun::drop_forsaken() {
  const auto is_forsaken = [](const auto& image) { return image.use_count() == 1; };
  if (std::all_of(images_.begin(), images_.end(), is_forsaken)) drop();
}

}  // namespace sluice::runtime
