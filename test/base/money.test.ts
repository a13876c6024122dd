import t from 'tap'
import {
  atFactor,
  FULL_PRICE,
  formatUsd,
  microToUsd,
  parseFactor,
  parseUsd,
  sumToUsd,
  toMicroUsd,
  toUsd,
} from '../../src/base/money.ts'

t.test('prices are read to whole units and written back the same', async t => {
  for (const text of ['0', '0.0000005', '0.000000000001', '1', '12.5', '999.999999999999']) {
    t.equal(formatUsd(parseUsd(text)), text)
  }
  t.equal(parseUsd('0.0000005'), 500_000)
  t.equal(parseUsd('1.50'), parseUsd('1.5'))
})

t.test('what is no plain decimal, or too fine, is refused', async t => {
  for (const text of ['', '-1', '1e-6', '.5', '1.', 'NaN', '0.0000000000001', '9999', '0x1', ' 1']) {
    t.throws(() => parseUsd(text), RangeError, text)
  }
})

t.test('sums of prices are exact where floats are not', async t => {
  t.equal(toUsd(parseUsd('0.1') + parseUsd('0.2')), 0.3)
  t.not(0.1 + 0.2, 0.3)
})

t.test('a number of dollars is read when no micro-dollar is lost', async t => {
  for (const [usd, micros] of [
    [0, 0],
    [0.000001, 1],
    [0.1, 100_000],
    [1.1, 1_100_000],
    [4.35, 4_350_000],
    [-3.3, -3_300_000],
    [999_999_999.999999, 999_999_999_999_999],
    [1e9, 1e15],
  ] as const) {
    t.equal(toMicroUsd(usd), micros)
    t.equal(microToUsd(micros), usd, 'and back')
  }
  t.ok(Object.is(toMicroUsd(-0), 0))
  for (const usd of [
    0.0000001,
    1.2345678,
    0.1 + 0.2,
    1e9 + 1,
    -1e9 - 1,
    Number.POSITIVE_INFINITY,
    Number.NaN,
  ])
    t.equal(toMicroUsd(usd), null, String(usd))
})

t.test('a sum is told by the number nearest to it, however large', async t => {
  for (const [sum, usd] of [
    [0n, 0],
    [1n, 1e-12],
    [-1n, -1e-12],
    [300_000_000_000n, 0.3],
    [1_999_999_999_999n, 1.999999999999],
    [-2_500_000_000_000n, -2.5],
    [123_456_789_012_345_678_901_234n, 123_456_789_012.34567],
  ] as const) {
    t.equal(sumToUsd(sum), usd)
  }
})

t.test('a share of prices is read exactly and never charges more than itself', async t => {
  for (const [text, factor] of [
    ['0', 0],
    ['1', FULL_PRICE],
    ['0.5', 500_000],
    ['0.000001', 1],
    ['1.25', 1_250_000],
    ['9.999999', 9_999_999],
  ] as const) {
    t.equal(parseFactor(text), factor, text)
  }
  for (const text of ['', '-1', '.5', '10', '1.', '0.0000001', '1e-1', ' 1', 'NaN'])
    t.throws(() => parseFactor(text), RangeError, text)
  t.equal(atFactor(31, FULL_PRICE), 31)
  t.equal(atFactor(31, 500_000), 15, 'rounded down')
  t.equal(atFactor(31, 0), 0)
  // A float product of these is another number.
  t.equal(atFactor(9_007_199_254_740_991, 999_999), 9_007_190_247_541_736)
})
