#include "c10.h"

#include <utility>

namespace c10 {

static int count = 0;

Error::Error(SourceLocation place, std::string message)
    : message_(std::move(message)), place_(std::string(place.file) + ":" + place.function), line_(place.line) {
    count++;
}
Error::~Error() { count--; }
const char *Error::what() const noexcept { return message_.c_str(); }
const char *Error::what_without_backtrace() const noexcept { return message_.c_str(); }
int Error::alive() { return count; }
OutOfMemoryError::~OutOfMemoryError() = default;

}  // namespace c10
