// lstm and gru over sequences.
#include <fmt/format.h>

#include "tests/catch.h"
#include "tests/harness.h"

namespace engine::test {
namespace {

struct Form {
  std::string name;
  int64_t steps, batch, width, hidden;
};

OpCase recurrent(bool lstm, const Form& f) {
  const int64_t gates = (lstm ? 4 : 3) * f.hidden;
  OpCase c{.op = lstm ? "lstm" : "gru",
           .name = fmt::format("{}, {}", lstm ? "lstm" : "gru", f.name),
           .inputs = {uniform({f.steps, f.batch, f.width}), uniform({gates, f.width}),
                      uniform({gates, f.hidden}), uniform({gates}), uniform({gates}),
                      uniform({f.batch, f.hidden})},
           .call =
               [=](const Tensors& t) {
                 if (!lstm) return ops::gru(t[0], t[1], t[2], t[3], t[4], t[5]);
                 const ops::LstmOutputs out = ops::lstm(t[0], t[1], t[2], t[3], t[4], t[5], t[6]);
                 const Tensor both[] = {out.y, out.cells};
                 return ops::concat(both, -1);
               },
           .reference = lstm ? reference::lstm : reference::gru,
           .ulps = 8,
           .terms = static_cast<double>((f.width + f.hidden) * f.steps),
           .bf16_roundings = 6 + 4 * static_cast<double>(f.steps),
           .zero_output = f.batch == 0,
           .zero_gradient = f.batch == 0};
  if (lstm) c.inputs.push_back(uniform({f.batch, f.hidden}));
  return c;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const bool lstm : {true, false}) {
    all.push_back(recurrent(lstm, {"one step", 1, 2, 3, 4}));
    all.push_back(recurrent(lstm, {"five steps", 5, 3, 4, 5}));
    all.push_back(recurrent(lstm, {"one of each", 1, 1, 1, 1}));
    all.push_back(recurrent(lstm, {"full vectors", 3, 2, 5, 16}));
    all.push_back(recurrent(lstm, {"many threads", 2, 40, 9, 33}));
    all.push_back(recurrent(lstm, {"no sequences", 3, 0, 4, 5}));
  }
  return all;
}

const CaseFile kFile(cases);

}  // namespace

TEST_CASE("op recurrent") { run_cases(cases()); }

TEST_CASE("op recurrent: undefined states and biases are zeros") {
  const Tensor x = tensor({2, 1, 1}, {0.5, -1}), w = tensor({4, 1}, {0.1, -0.2, 0.3, 0.4}),
               zeros = full({1, 1}, 0), none = full({4}, 0);
  const ops::LstmOutputs a = ops::lstm(x, w, w), b = ops::lstm(x, w, w, none, none, zeros, zeros);
  CHECK(a.y.to_vector<float>() == b.y.to_vector<float>());
  CHECK(a.cells.to_vector<float>() == b.cells.to_vector<float>());
  const Tensor u = tensor({3, 1}, {0.1, -0.2, 0.3}), empty = full({3}, 0);
  CHECK(ops::gru(x, u, u).to_vector<float>() ==
        ops::gru(x, u, u, empty, empty, zeros).to_vector<float>());
}

TEST_CASE("op recurrent errors") {
  const Tensor x = full({4, 2, 3}, 1), w_ih = full({20, 3}, 1), w_hh = full({20, 5}, 1),
               state = full({2, 5}, 1);
  check_error([&] { ops::lstm(full({0, 2, 3}, 1), w_ih, w_hh); }, {"[lstm]", "[0, 2, 3]"});
  check_error([&] { ops::lstm(full({2, 3}, 1), w_ih, w_hh); }, {"[lstm]", "[2, 3]"});
  check_error([&] { ops::lstm(x, full({16, 3}, 1), w_hh); }, {"[lstm]", "[4, 2, 16]", "[20, 5]"});
  check_error([&] { ops::lstm(x, w_ih, full({20, 4}, 1)); }, {"[lstm]", "[20, 4]"});
  check_error(
      [&] {
        ops::lstm(x, w_ih, w_hh, {}, {}, full({3, 5}, 1));
      },
      {"[lstm]", "[2, 5]", "[3, 5]"});
  check_error(
      [&] {
        ops::lstm(x, w_ih, w_hh, {}, {}, state, full({2, 4}, 1));
      },
      {"[lstm]", "[2, 5]", "[2, 4]"});
  check_error([&] { ops::lstm(x, full({20, 2}, 1), w_hh); }, {"[linear]", "[20, 2]"});
  check_error([&] { ops::lstm(x, w_ih, w_hh, {}, {}, ops::cast(state, DType::bf16)); },
              {"[lstm]", "bf16"});
  check_error([&] { ops::gru(x, w_ih, w_hh); }, {"[gru]", "[4, 2, 20]", "[20, 5]"});
  check_error(
      [&] {
        ops::gru(x, full({15, 3}, 1), full({15, 5}, 1), {}, full({5}, 1));
      },
      {"[gru]", "[15]", "[5]"});
}

}  // namespace engine::test
