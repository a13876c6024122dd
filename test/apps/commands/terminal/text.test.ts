/** Numbers, times and foreign words as a terminal shows them. */
import t from 'tap'
import {
  count,
  counted,
  duration,
  exactUsd,
  plain,
  roughly,
  shortUsd,
  table,
} from '../../../../src/apps/commands/terminal/text.ts'

t.test('text of others cannot change the terminal, and is cut', async t => {
  t.equal(plain('a\x1b[2Jb\r\n\tc\u0007'), 'a [2Jb c')
  t.equal(plain('\x9b31mred\u202edlrow\u2066x\ufeff'), '31mred dlrow x')
  t.equal(plain('naïve 模型 😀'), 'naïve 模型 😀')
  t.equal(plain('x'.repeat(301)), `${'x'.repeat(297)}...`)
  t.equal(plain('abcdef', 5), 'ab...')
})

t.test('numbers have commas between thousands', async t => {
  for (const [value, text] of [
    [0, '0'],
    [999, '999'],
    [1000, '1,000'],
    [1234567, '1,234,567'],
  ] as const)
    t.equal(count(value), text)
  t.equal(counted(1, 'line'), '1 line')
  t.equal(counted(2000, 'line'), '2,000 lines')
})

t.test('durations are told to the second, ages in their largest unit', async t => {
  for (const [ms, exact, rough] of [
    [-5_000, '0:00', '0 s'],
    [999, '0:00', '0 s'],
    [7_000, '0:07', '7 s'],
    [60_000, '1:00', '1 min'],
    [3_599_999, '59:59', '59 min'],
    [3_600_000, '1:00:00', '1 h'],
    [86_399_000, '23:59:59', '23 h'],
    [90_061_000, '1d 1:01:01', '1 d'],
  ] as const) {
    t.equal(duration(ms), exact)
    t.equal(roughly(ms), rough)
  }
})

t.test('amounts of money are never written with an exponent', async t => {
  for (const [usd, exact, short] of [
    [0, '$0.00', '$0.00'],
    [0.00000015, '$0.00000015', '$0.00000015'],
    [1e-12, '$0.000000000001', '$0.000000000001'],
    [0.0313992, '$0.0313992', '$0.0314'],
    [0.5, '$0.50', '$0.50'],
    [0.9999, '$0.9999', '$1.00'],
    [3, '$3.00', '$3.00'],
    [123456.789, '$123456.789', '$123456.79'],
  ] as const) {
    t.equal(exactUsd(usd), exact)
    t.equal(shortUsd(usd), short)
  }
})

t.test('a table has columns of equal width and no spaces at the end', async t => {
  t.same(
    table(
      [
        ['A', 'N', 'B'],
        ['long', '1', 'x'],
        ['s', '1000', ''],
      ],
      new Set([1]),
    ),
    ['A        N  B', 'long     1  x', 's     1000'],
  )
})
