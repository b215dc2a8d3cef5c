// How far a training run is, on standard error: a bar that is redrawn in place on a terminal, plain
// lines elsewhere. Standard error that cannot be written is no reason to stop a run, so no failure
// here is reported.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "models/train.h"

namespace engine::tools {

class Progress {
 public:
  enum class Style { none, lines, bar };
  /// A bar where standard error is a terminal that can redraw a line.
  static Style style_for_stderr();

  Progress(Style style, int64_t epochs) : style_(style), epochs_(epochs) {}
  ~Progress() { clear_bar(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(const StepReport& report);
  /// Moves the bar between two reports of the loss.
  void on_progress(int64_t step);
  void on_eval(const EvalReport& report);

 private:
  using Clock = std::chrono::steady_clock;

  void draw_bar();
  void clear_bar();

  Style style_;
  int64_t epochs_;
  bool bar_shown_ = false;
  StepReport shown_;  // the last report, its step moved on
  Clock::time_point last_draw_;
  // The first report: time left is judged from the pace since then, so that start-up does not
  // count.
  std::optional<int64_t> first_step_;
  Clock::time_point first_time_;
};

}  // namespace engine::tools
