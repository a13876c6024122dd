import t from 'tap'
import { formatUsd, parseUsd, toUsd } from '../src/money.ts'

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
