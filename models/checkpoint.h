// Checkpoints: all that a run needs to go on where it was, bit for bit, in a file of its own for
// each moment. A folder holds the last few of them and the best.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace engine {

/// What is saved. The tensors are the run's own memory: loading copies into them. They stand in the
/// file as they lie there (images' layouts are the engine's, not PyTorch's: save_weights writes
/// those).
struct TrainingState {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, int64_t> numbers;
  /// What a run that goes on must have in common with the one that saved: "model", "batch size".
  std::map<std::string, std::string> run;
};

/// checkpoint-0000000123.safetensors for the state after step 123; best.safetensors is a link to
/// the one that evaluation liked best.
class CheckpointFolder {
 public:
  /// Makes the folder where it is missing, and clears away what a killed process has left half
  /// written. Throws Error naming the folder.
  CheckpointFolder(std::string folder, int64_t keep);

  /// The newest checkpoint of a folder; nothing where there is none.
  static std::optional<std::string> newest(const std::string& folder);

  /// Writes the whole file or leaves none; then removes all but the last `keep` and the best.
  /// Throws Error naming the file; also where a tensor is not finite: a good checkpoint is worth
  /// more than a newer one.
  void save(const TrainingState& state, int64_t step, bool best);

 private:
  void mark_best(const std::string& name) const;
  void remove_old() const;

  std::string folder_;
  int64_t keep_;
};

/// Fills the state's tensors and numbers from a file. Before anything is changed, all is held
/// against the state: an Error lists every tensor and property of the run that is missing,
/// unexpected or different.
void load_checkpoint(const std::string& path, TrainingState& state);

}  // namespace engine
