// SafeFile: the target is the whole new file after commit(), and untouched in every other case,
// with no temporary left beside it.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "profiler/safe_file.h"
#include "tests/catch.h"

using engine::SafeFile;

namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "safe-file-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) found.insert(entry.path().filename());
    return found;
  }

 private:
  std::string path_;
};

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Files cannot grow beyond `bytes` while this lives: what a full disk looks like to a writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limited{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

// The message of the std::runtime_error that `action` throws; nothing if it throws none.
template <class Action>
std::optional<std::string> error_of(Action&& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("SafeFile: commit puts the whole file in its place", "[safe_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.json";
  std::string text;
  for (int i = 0; text.size() < 300000; ++i) text += std::to_string(i) + '\0';
  {
    SafeFile file(path);
    for (size_t at = 0; at < text.size(); at += 1000) file.write(text.substr(at, 1000));
    CHECK_FALSE(fs::exists(path));
    file.commit();
  }
  CHECK(get(path) == text);
  CHECK(folder.names() == std::set<std::string>{"a.json"});
}

TEST_CASE("SafeFile: commit replaces an old file", "[safe_file]") {
  const TemporaryFolder folder;
  put(folder / "a", "old and longer");
  SafeFile file(folder / "a");
  file.write("new");
  CHECK(get(folder / "a") == "old and longer");
  file.commit();
  CHECK(get(folder / "a") == "new");
  CHECK(folder.names() == std::set<std::string>{"a"});
}

TEST_CASE("SafeFile: an empty file is a file", "[safe_file]") {
  const TemporaryFolder folder;
  SafeFile(folder / "a").commit();
  CHECK(folder.names() == std::set<std::string>{"a"});
  CHECK(fs::file_size(folder / "a") == 0);
}

TEST_CASE("SafeFile: new files have the permissions of ordinary new files", "[safe_file]") {
  const TemporaryFolder folder;
  put(folder / "ordinary", "");
  SafeFile(folder / "safe").commit();
  CHECK(fs::status(folder / "safe").permissions() == fs::status(folder / "ordinary").permissions());
}

TEST_CASE("SafeFile: without commit the old file stays and nothing else does", "[safe_file]") {
  const TemporaryFolder folder;
  put(folder / "a", "good");
  {
    SafeFile file(folder / "a");
    file.write(std::string(100000, 'x'));
    CHECK(folder.names().size() == 2);  // the temporary lies beside its target, so rename() works
  }
  CHECK(get(folder / "a") == "good");
  CHECK(folder.names() == std::set<std::string>{"a"});
}

TEST_CASE("SafeFile: a full disk leaves the old file and says so", "[safe_file]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  put(path, "good");
  // Small enough to wait in a buffer, and so found out by commit; and large, found out by write.
  const size_t size = GENERATE(size_t{2000}, size_t{1000000});
  std::optional<std::string> message;
  {
    const FileSizeLimit limit(1000);
    SafeFile file(path);
    message = error_of([&] {
      file.write(std::string(size, 'x'));
      file.commit();
    });
    CHECK(folder.names() == std::set<std::string>{"a"});  // gone at the error, not at the end
    CHECK(error_of([&] { file.write("more"); }));
    CHECK(error_of([&] { file.commit(); }));
  }
  CHECK(message == "cannot write '" + path + "': File too large");
  CHECK(get(path) == "good");
}

TEST_CASE("SafeFile: errors name the path and the reason", "[safe_file]") {
  const TemporaryFolder folder;
  put(folder / "file", "good");
  fs::create_directory(folder / "folder");
  fs::create_symlink("loop", folder / "loop");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const auto opening = [](const std::string& path) {
    return error_of([&] { SafeFile file(path); });
  };
  const auto message = [](const std::string& path, const std::string& reason) {
    return "cannot write '" + path + "': " + reason;
  };
  const std::set<std::string> before = folder.names();
  CHECK(opening(folder / "none/a") == message(folder / "none/a", "No such file or directory"));
  CHECK(opening(folder / "file/a") == message(folder / "file/a", "Not a directory"));
  CHECK(opening(folder / "folder") == message(folder / "folder", "Is a directory"));
  CHECK(opening(folder / "pipe") == message(folder / "pipe", "not a regular file"));
  CHECK(opening("/dev/full") == message("/dev/full", "not a regular file"));
  CHECK(opening(folder / "loop") == message(folder / "loop", "Too many levels of symbolic links"));
  CHECK(opening(folder / std::string(255, 'a')) ==
        message(folder / std::string(255, 'a'), "File name too long"));
  CHECK(folder.names() == before);
  CHECK(get(folder / "file") == "good");
}

TEST_CASE("SafeFile: a symbolic link stays, the file behind it is replaced", "[safe_file]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "far");
  put(folder / "far/a", "old");
  fs::create_symlink("far/a", folder / "link");
  SafeFile file(folder / "link");
  file.write("new");
  file.commit();
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(get(folder / "far/a") == "new");
}

TEST_CASE("SafeFile: two writers of one file do not meet", "[safe_file]") {
  const TemporaryFolder folder;
  SafeFile first(folder / "a");
  SafeFile second(folder / "a");
  first.write("first");
  second.write("second");
  second.commit();
  CHECK(get(folder / "a") == "second");
  first.commit();
  CHECK(get(folder / "a") == "first");
  CHECK(folder.names() == std::set<std::string>{"a"});
}
