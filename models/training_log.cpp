#include "models/training_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "profiler/safe_file.h"

namespace engine {

namespace {

// The shortest text that reads back as the same number.
std::string number_or(double value, const char* instead) {
  return std::isfinite(value) ? fmt::format("{}", value) : instead;
}
std::string csv(double value) { return number_or(value, ""); }
std::string json(double value) { return number_or(value, "null"); }

}  // namespace

TrainingLog::TrainingLog(const std::string& path) : path_(path), json_(path.ends_with(".jsonl")) {
  check(json_ || path.ends_with(".csv"), "log",
        "expected a file that ends in .csv or .jsonl, got '{}'", path);
  try {
    target_ = output_target(path);
    partial_ = target_ + ".partial";
    output_target(partial_);
  } catch (const std::runtime_error& error) {
    fail("log", "{}", error.what());
  }
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_to_write(errno);
  // Whoever had the lock may have renamed the file after it was opened here: then it is theirs.
  struct stat opened {};
  struct stat named {};
  int error = 0;
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    error = errno;
  } else if (::fstat(descriptor_, &opened) != 0 || ::stat(partial_.c_str(), &named) != 0 ||
             opened.st_ino != named.st_ino) {
    error = EWOULDBLOCK;
  } else if (::ftruncate(descriptor_, 0) != 0) {  // what a run that was killed has left
    error = errno;
  }
  if (error != 0) {
    ::close(std::exchange(descriptor_, -1));
    check(error != EWOULDBLOCK, "log", "cannot write '{}': another run is writing it", path_);
    fail_to_write(error);
  }
  try {
    if (!json_) append("type,step,epoch,loss,lr,grad_norm,step_ms,samples_per_second,accuracy\n");
  } catch (...) {
    ::unlink(partial_.c_str());
    ::close(descriptor_);
    throw;
  }
}

TrainingLog::~TrainingLog() {
  if (descriptor_ < 0) return;
  if (!has_rows_) ::unlink(partial_.c_str());
  ::close(descriptor_);
}

void TrainingLog::write(const StepReport& r) {
  if (json_) {
    append(fmt::format(R"({{"type":"train","step":{},"epoch":{},"loss":{},"lr":{},"grad_norm":{},)"
                       R"("step_ms":{},"samples_per_second":{}}})"
                       "\n",
                       r.step, r.epoch, json(r.loss), json(r.lr),
                       r.grad_norm ? json(*r.grad_norm) : "null", json(r.step_ms),
                       json(r.samples_per_second)));
  } else {
    append(fmt::format("train,{},{},{},{},{},{},{},\n", r.step, r.epoch, csv(r.loss), csv(r.lr),
                       r.grad_norm ? csv(*r.grad_norm) : "", csv(r.step_ms),
                       csv(r.samples_per_second)));
  }
  has_rows_ = true;
}

void TrainingLog::write(const EvalReport& r) {
  if (json_) {
    append(fmt::format(R"({{"type":"eval","step":{},"epoch":{},"loss":{},"accuracy":{}}})"
                       "\n",
                       r.step, r.epoch, json(r.loss), r.accuracy ? json(*r.accuracy) : "null"));
  } else {
    append(fmt::format("eval,{},{},{},,,,,{}\n", r.step, r.epoch, csv(r.loss),
                       r.accuracy ? csv(*r.accuracy) : ""));
  }
  has_rows_ = true;
}

void TrainingLog::finish() {
  if (::fsync(descriptor_) != 0) fail_to_write(errno);
  if (std::rename(partial_.c_str(), target_.c_str()) != 0) fail_to_write(errno);
  // Closed last: the lock that goes with it guards the name until then.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write(errno);
}

void TrainingLog::append(const std::string& line) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(descriptor_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      // The file ends with a whole line again; should even this fail, the first error is the news.
      if (before >= 0) [[maybe_unused]]
        const int ignored = ::ftruncate(descriptor_, before);
      fail_to_write(error);
    }
    done += static_cast<size_t>(count);
  }
}

void TrainingLog::fail_to_write(int error) const {
  fail("log", "cannot write '{}': {}", path_, std::strerror(error));
}

}  // namespace engine
