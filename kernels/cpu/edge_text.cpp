// Lines of text to edges: integers and weights in columns.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.h"

namespace spsample {
namespace {

struct Token {
    const char* begin;
    const char* end;
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\f' || c == '\v'; }

Token trimmed(Token token) {
    while (token.begin < token.end && is_blank(*token.begin)) ++token.begin;
    while (token.begin < token.end && is_blank(token.end[-1])) --token.end;
    return token;
}

// The fields of a line. They are separated by the delimiter, of which ' ' stands for any number of blanks; blanks around a field do
// not count. A field that begins with a quote ends at the next single one; two of them stand for one (RFC 4180).
class Fields {
public:
    explicit Fields(char delimiter) : delimiter_(delimiter) {}

    // False where a quote is not closed, where more than blanks follow a closing one, or with a carriage return in the line. O(bytes).
    bool split(const char* at, const char* end, std::vector<Token>& tokens) const {
        tokens.clear();
        if (std::memchr(at, '\r', static_cast<size_t>(end - at))) return false;
        while (true) {
            while (at < end && is_padding(*at)) ++at;
            if (at == end && delimiter_ == ' ') return true;
            if (at < end && *at == '"') {
                const char* const close = closing_quote(at + 1, end);
                if (close == end) return false;
                tokens.push_back({at + 1, close});
                at = close + 1;
                while (at < end && !ends_field(*at)) {
                    if (!is_padding(*at++)) return false;
                }
            } else {
                const char* stop = at;
                while (stop < end && !ends_field(*stop)) ++stop;
                tokens.push_back(trimmed({at, stop}));
                at = stop;
            }
            if (at == end) return true;
            ++at;
        }
    }

private:
    bool is_padding(char c) const { return is_blank(c) && (delimiter_ == ' ' || c != delimiter_); }
    bool ends_field(char c) const { return delimiter_ == ' ' ? is_blank(c) : c == delimiter_; }

    static const char* closing_quote(const char* at, const char* end) {
        for (; at < end; ++at) {
            if (*at != '"') continue;
            if (at + 1 == end || at[1] != '"') return at;
            ++at;
        }
        return end;
    }

    char delimiter_;
};

bool parse_id(const Token& token, int64_t& value) {
    const char* begin = token.begin;
    if (begin < token.end && *begin == '+') ++begin;
    const auto result = std::from_chars(begin, token.end, value);
    return result.ec == std::errc() && result.ptr == token.end;
}

bool parse_weight(const Token& token, double& value) {
    const char* begin = token.begin;
    if (begin < token.end && *begin == '+') ++begin;
#if defined(__cpp_lib_to_chars)
    const auto result = std::from_chars(begin, token.end, value);
    return result.ec == std::errc() && result.ptr == token.end;
#else
    const std::string text(begin, token.end);
    char* end = nullptr;
    value = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0';
#endif
}

// How the lines of a text are read: numbers of columns (weight -1: none), and how many fields a line has.
struct LineForm {
    size_t source, target;
    int64_t weight;
    size_t least, most;

    // A line may leave out empty fields at its end that others have.
    bool fits(const std::vector<Token>& tokens) const {
        size_t held = tokens.size();
        while (held > 0 && tokens[held - 1].begin == tokens[held - 1].end) --held;
        return tokens.size() >= least && held <= most;
    }
    bool reaches(const std::vector<Token>& tokens) const {
        return source < tokens.size() && target < tokens.size() && weight < static_cast<int64_t>(tokens.size());
    }
};

LineForm line_form(const std::tuple<int64_t, int64_t, int64_t>& columns, const std::pair<int64_t, int64_t>& fields) {
    const auto [source, target, weight] = columns;
    require(source >= 0 && target >= 0 && weight >= -1, "columns", "must not be negative");
    require(fields.first >= 0 && fields.second >= fields.first, "fields", "must be the least and the most of a line");
    return {static_cast<size_t>(source), static_cast<size_t>(target), weight, static_cast<size_t>(fields.first),
            static_cast<size_t>(fields.second)};
}

// Ids as they are.
struct IntegerEnds {
    Buffer<int64_t> sources, targets;
    void reserve(int64_t most) {
        sources = Buffer<int64_t>(most);
        targets = Buffer<int64_t>(most);
    }
    bool take(int64_t i, const char*, const Token& source, const Token& target) {
        return parse_id(trimmed(source), sources[i]) && parse_id(trimmed(target), targets[i]);
    }
    static bool may_be_edge(const char*, const char*, char) { return true; }
};

// Where names begin and end in the text: (begin, end) of edge i at 2i.
struct NamedEnds {
    Buffer<int64_t> sources, targets;
    void reserve(int64_t most) {
        sources = Buffer<int64_t>(2 * most);
        targets = Buffer<int64_t>(2 * most);
    }
    bool take(int64_t i, const char* text, const Token& source, const Token& target) {
        sources[2 * i] = source.begin - text;
        sources[2 * i + 1] = source.end - text;
        targets[2 * i] = target.begin - text;
        targets[2 * i + 1] = target.end - text;
        const Token ends[] = {trimmed(source), trimmed(target)};
        return ends[0].begin < ends[0].end && ends[1].begin < ends[1].end;
    }
    // A name may begin as a comment does; a comment has a blank, or the same sign, behind the first one.
    static bool may_be_edge(const char* begin, const char* end, char delimiter) {
        return begin + 1 < end && begin[1] != begin[0] && (!is_blank(begin[1]) || (begin[1] == delimiter && delimiter != ' '));
    }
};

// (sources, targets, weights, lines, bad): the edges of whole lines, the last of which may lack its newline. Empty lines and those that
// start with # or % are passed over, unless they would be edges. `bad` is -1, or the number of the first line (from 0) that is no edge: it has fewer or more fields
// than it may have, a quote that is not closed, or something else than an integer (a name; a number, in the column of weights) in a
// column; edges before it are returned. weight -1: no weights (an empty array). O(bytes).
template <class Ends>
nb::tuple parse(const nb::bytes& text, const char* delimiter, const LineForm& form) {
    require(std::strlen(delimiter) == 1, "delimiter", "must be one character");
    const char* const start = text.c_str();
    const char* const end = start + text.size();
    Ends ends;
    Buffer<double> weights;
    int64_t line = 0, bad = -1, count = 0;
    {
        const nb::gil_scoped_release release;
        int64_t most = end > start && end[-1] != '\n';
        for (const char* p = start; p < end; ++p) most += *p == '\n';
        ends.reserve(most);
        weights = Buffer<double>(form.weight < 0 ? 0 : most);
        const Fields fields(delimiter[0]);
        std::vector<Token> tokens;
        for (const char* at = start; at < end; ++line) {
            const char* stop = static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
            if (!stop) stop = end;
            const char* const begin = at;
            const char* first = at;
            at = stop == end ? end : stop + 1;
            while (first < stop && (*first == ' ' || *first == '\t' || *first == '\r')) ++first;
            if (first == stop) continue;
            const bool comment = *first == '#' || *first == '%';
            if (comment && !Ends::may_be_edge(first, stop, delimiter[0])) continue;
            const char* last = stop;
            while (last > first && last[-1] == '\r') --last;
            // blanks may be empty columns between tabs
            const bool good = fields.split(begin, last, tokens) && form.fits(tokens) && form.reaches(tokens) &&
                              ends.take(count, start, tokens[form.source], tokens[form.target]) &&
                              (form.weight < 0 || parse_weight(trimmed(tokens[static_cast<size_t>(form.weight)]), weights[count]));
            if (comment && !good) continue;
            if (!good || comment) {
                bad = line;
                break;
            }
            ++count;
        }
    }
    const auto cut = [](nb::object array, int64_t size) { return array[nb::slice(nb::int_(0), nb::int_(size), nb::none())]; };
    const int64_t size = std::is_same_v<Ends, NamedEnds> ? 2 * count : count;
    return nb::make_tuple(cut(to_numpy(std::move(ends.sources)), size), cut(to_numpy(std::move(ends.targets)), size),
                          cut(to_numpy(std::move(weights)), form.weight < 0 ? 0 : count), line, bad);
}

using Columns = std::tuple<int64_t, int64_t, int64_t>;
using FieldCounts = std::pair<int64_t, int64_t>;

nb::tuple edge_parse(nb::bytes text, const char* delimiter, const Columns& columns, const FieldCounts& fields) {
    return parse<IntegerEnds>(text, delimiter, line_form(columns, fields));
}

nb::tuple edge_names(nb::bytes text, const char* delimiter, const Columns& columns, const FieldCounts& fields) {
    return parse<NamedEnds>(text, delimiter, line_form(columns, fields));
}

// The fields of one line, quotes removed; None where a quote is not closed. O(bytes).
nb::object text_fields(nb::bytes line, const char* delimiter) {
    require(std::strlen(delimiter) == 1, "delimiter", "must be one character");
    const char* const begin = line.c_str();
    std::vector<Token> tokens;
    if (!Fields(delimiter[0]).split(begin, begin + line.size(), tokens)) return nb::none();
    nb::list fields;
    for (const Token& token : tokens) {
        std::string field(token.begin, token.end);
        const bool quoted = token.begin > begin && token.begin[-1] == '"';
        for (size_t at = 0; quoted && (at = field.find("\"\"", at)) != std::string::npos; ++at) field.erase(at, 1);
        fields.append(nb::bytes(field.data(), field.size()));
    }
    return fields;
}

}  // namespace

void bind_edge_text(nb::module_& m) {
    m.def("edge_parse", &edge_parse, nb::arg("text"), nb::arg("delimiter"), nb::arg("columns"), nb::arg("fields"),
          "Sources, targets and weights of lines of text, the number of lines, and the first bad one or -1.");
    m.def("edge_names", &edge_names, nb::arg("text"), nb::arg("delimiter"), nb::arg("columns"), nb::arg("fields"),
          "As edge_parse, for names: where each begins and ends in the text.");
    m.def("text_fields", &text_fields, nb::arg("line"), nb::arg("delimiter"), "The fields of a line, or None where a quote is not closed.");
}

}  // namespace spsample
