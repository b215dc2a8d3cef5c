// The log of a training run as a table that other programs read: one row for each report of the
// training loop, as CSV or as JSON Lines (https://jsonlines.org).
#pragma once

#include <string>

#include "models/train.h"

namespace engine {

/// Rows grow in FILE.partial, each written out whole as it comes, and finish() renames that to
/// FILE: so a run that fails or is interrupted leaves the FILE of an earlier run as it was, and its
/// own rows beside it.
///
///   train: type, step, epoch, loss, lr, grad_norm, step_ms, samples_per_second
///   eval:  type, step, epoch, loss, accuracy
/// CSV has one header for both kinds of row; a field that the other kind has is empty. A number
/// that is not finite, or was not measured (the gradient norm without clipping), is empty in CSV
/// and null in JSON.
class TrainingLog {
 public:
  /// Opens the log; the path ends in .csv or .jsonl. Throws Error naming the file, also when
  /// another process is writing the same log.
  explicit TrainingLog(const std::string& path);
  /// Keeps FILE.partial where it has rows.
  ~TrainingLog();
  TrainingLog(const TrainingLog&) = delete;
  TrainingLog& operator=(const TrainingLog&) = delete;

  /// Throws Error, with no part of the row left in the file, when it cannot be written.
  void write(const StepReport& report);
  void write(const EvalReport& report);
  /// Puts the log in its place. Once, as the last call.
  void finish();

  const std::string& partial_path() const { return partial_; }

 private:
  void append(const std::string& line);
  [[noreturn]] void fail_to_write(int error) const;

  std::string path_;  // as the caller named it, for messages
  std::string target_;
  std::string partial_;
  bool json_;
  bool has_rows_ = false;
  int descriptor_ = -1;  // -1 once finished
};

}  // namespace engine
