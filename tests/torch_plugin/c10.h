// The little of PyTorch's c10 that the plug-in finds by name, with the same names, so that tests need no PyTorch.
#pragma once
#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class Error : public std::exception {
    std::string message_;
    std::string place_;
    uint32_t line_;

  public:
    Error(SourceLocation place, std::string message);
    ~Error() override;
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept;
    const std::string &place() const { return place_; }
    uint32_t line() const { return line_; }
    static int alive();
};

class OutOfMemoryError : public Error {
  public:
    using Error::Error;
    ~OutOfMemoryError() override;
};

}  // namespace c10
