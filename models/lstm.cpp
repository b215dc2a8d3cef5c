// lstm: a language model over characters (or any small vocabulary): embedding, LSTM layers, one
// linear layer. Names are those of the usual PyTorch module of an nn.Embedding `embedding`, an
// nn.LSTM `lstm` and an nn.Linear `linear`.
#include "core/error.h"
#include "layers/layers.h"
#include "models/networks.h"

namespace engine {

namespace {

class LstmModel : public Module {
 public:
  explicit LstmModel(const ModelOptions& o) {
    const int64_t layers = o.layers ? o.layers : 2, width = o.width ? o.width : 256,
                  embedding = o.embedding ? o.embedding : 64;
    embedding_ =
        register_module("embedding", std::make_shared<Embedding>(o.classes, embedding, o.device));
    lstm_ = register_module(
        "lstm",
        std::make_shared<LSTM>(
            embedding, width,
            LstmOptions{.layers = layers, .dropout = o.dropout.value_or(0), .batch_first = true},
            o.device));
    linear_ = register_module("linear", std::make_shared<Linear>(width, o.classes, o.device));
  }

 protected:
  Tensor forward(const Tensor& ids) override {
    check(ids.rank() == 2 && ids.dtype() == DType::i64 && ids.size(1) >= 1, "lstm",
          "expected ids i64 [N, T] with T >= 1, got {}", describe(ids));
    return (*linear_)((*lstm_)((*embedding_)(ids)));
  }

 private:
  std::shared_ptr<Embedding> embedding_;
  std::shared_ptr<LSTM> lstm_;
  std::shared_ptr<Linear> linear_;
};

}  // namespace

std::unique_ptr<Model> make_lstm(const ModelOptions& options) {
  return std::make_unique<LstmModel>(options);
}

}  // namespace engine
