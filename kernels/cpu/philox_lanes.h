// Philox4x32-10 in the lanes of registers, once for each instruction set. The file that includes this one, within a namespace of its
// own, defines
//   SPSAMPLE_LANES                         attributes of its functions: `always_inline`, and the instructions they may use
//   Register                               32-bit lanes, also read as 64-bit lanes of two halves each
//   same_lanes(word)                       the word in all 32-bit lanes
//   high_halves(x)                         the high halves of 64-bit lanes, moved to the low ones
//   multiply(a, b)                         64-bit products of the low halves
//   exclusive_or(a, b), xor3(a, b, c)
// No #pragma once: it is part of that file.

// Words in the low halves of 64-bit lanes: those of the even lanes, and those of the odd ones. What is in the high halves does not
// count: neither a multiplication nor an exclusive or of the low halves looks at it.
struct Words {
    Register even;
    Register odd;
};

SPSAMPLE_LANES Words words_of(Register lanes) { return {lanes, high_halves(lanes)}; }

SPSAMPLE_LANES Words same_words(uint32_t word) {
    const Register lanes = same_lanes(word);
    return {lanes, lanes};
}

// Four words of each counter.
struct PhiloxLanes {
    Words w[4];
};

// The same of half the counters.
struct HalfOfCounters {
    Register w[4];
};

// One round: the products' low words need not be moved.
SPSAMPLE_LANES HalfOfCounters philox_round(const HalfOfCounters& c, Register key0, Register key1) {
    const Register product0 = multiply(c.w[0], same_lanes(0xD2511F53));
    const Register product1 = multiply(c.w[2], same_lanes(0xCD9E8D57));
    return {{xor3(high_halves(product1), c.w[1], key0), product1, xor3(high_halves(product0), c.w[3], key1), product0}};
}

// Of all counters under one key.
SPSAMPLE_LANES PhiloxLanes philox(const PhiloxLanes& counter, const RoundKeys& keys) {
    HalfOfCounters even{{counter.w[0].even, counter.w[1].even, counter.w[2].even, counter.w[3].even}};
    HalfOfCounters odd{{counter.w[0].odd, counter.w[1].odd, counter.w[2].odd, counter.w[3].odd}};
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const Register key0 = same_lanes(keys.round[round].word0), key1 = same_lanes(keys.round[round].word1);
        even = philox_round(even, key0, key1);
        odd = philox_round(odd, key0, key1);
    }
    return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
}

// The blocks of rows whose counters have one c1, that of the hop: of vertices below 2^32. Rounds 1 and 2 mix the words of a row with each
// other and, only by constants, with the block's number: they are made once for all blocks of a row.
class RowBlocks {
public:
    SPSAMPLE_LANES_MEMBER RowBlocks(Register vertex_low, Register batch_id, const BlockStart* starts, const RoundKeys& keys)
        : starts_(starts), keys_(keys), even_(vertex_low, batch_id, keys), odd_(high_halves(vertex_low), high_halves(batch_id), keys) {}

    // Block `number` of each row.
    SPSAMPLE_LANES_MEMBER PhiloxLanes block(int number) const {
        const BlockStart& start = starts_[number];
        HalfOfCounters even = even_.third_round(start), odd = odd_.third_round(start);
#pragma GCC unroll 10
        for (int round = 3; round < kPhiloxRounds; ++round) {
            const Register key0 = same_lanes(keys_.round[round].word0), key1 = same_lanes(keys_.round[round].word1);
            even = philox_round(even, key0, key1);
            odd = philox_round(odd, key0, key1);
        }
        return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
    }

private:
    // Words of the third round's counters, up to constants of the block, of half the rows.
    struct Half {
        Register w0, w1, w2;

        SPSAMPLE_LANES_MEMBER Half(Register vertex_low, Register batch_id, const RoundKeys& keys) {
            w2 = multiply(vertex_low, same_lanes(0xD2511F53));
            const Register c2 = xor3(high_halves(w2), batch_id, same_lanes(keys.round[0].word1));
            const Register product1 = multiply(c2, same_lanes(0xCD9E8D57));
            w0 = high_halves(product1);
            w1 = exclusive_or(product1, same_lanes(keys.round[2].word0));
        }

        SPSAMPLE_LANES_MEMBER HalfOfCounters third_round(const BlockStart& start) const {
            const Register product0 = multiply(exclusive_or(w0, same_lanes(start.word0)), same_lanes(0xD2511F53));
            const Register product1 = multiply(exclusive_or(w2, same_lanes(start.word2)), same_lanes(0xCD9E8D57));
            const Register c2 = exclusive_or(high_halves(product0), same_lanes(start.word3));
            return {{exclusive_or(high_halves(product1), w1), product1, c2, product0}};
        }
    };

    const BlockStart* starts_;
    const RoundKeys& keys_;
    Half even_, odd_;
};

// The blocks of any rows.
class CounterBlocks {
public:
    SPSAMPLE_LANES_MEMBER CounterBlocks(Register c0, Register c1, Register c3, const RoundKeys& keys)
        : keys_(keys), counter_{{words_of(c0), words_of(c1), {}, words_of(c3)}} {}

    SPSAMPLE_LANES_MEMBER PhiloxLanes block(int number) const {
        PhiloxLanes counter = counter_;
        counter.w[2] = same_words(static_cast<uint32_t>(number));
        return philox(counter, keys_);
    }

private:
    const RoundKeys& keys_;
    PhiloxLanes counter_;
};
