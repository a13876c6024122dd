/** Time must grow with the length of a text, not with its square, whatever the text. Ratios only: no limits in ms. */
import t from 'tap'
import { compileRules } from '../../../src/features/guardrails/rules.ts'
import { bestCpuMs } from '../../support/cpu-time.ts'
import { ALL_SLUGS, rulesOf } from '../../support/guardrail-texts.ts'

/** What sends careless expressions back again and again. */
const UNITS: readonly string[] = [
  'a',
  '1',
  ' ',
  '.',
  '-',
  '@',
  ':',
  '/',
  '+',
  '=',
  '_',
  '#',
  '<',
  '[',
  '"',
  'A',
  'é',
  '漢',
  '\n',
  '\u200b',
  '0',
  '::',
  '1.',
  'a.',
  'a@',
  '@a',
  'a@a.',
  '1 ',
  '1-',
  '12-',
  '123-45-',
  '4111 ',
  '41',
  '+1 ',
  '+1',
  '1.1.',
  'a:',
  'a b ',
  'i-',
  'A ',
  'Aa ',
  'Aa-',
  'John ',
  'John S',
  'Mr. ',
  'My name is ',
  '1 Main ',
  '1 A ',
  '12 rue de ',
  'Via ',
  'Calle ',
  'P.O. Box ',
  'Hauptweg ',
  'sk-',
  'sk-a',
  'eyJ',
  'eyJaaaaaaaaaaaa.',
  'password=',
  'password: a',
  'token is ',
  'a_',
  'api_key',
  '://',
  'a://a:',
  'http://a:b',
  'Bearer ',
  'Bearer a',
  '-----BEGIN PRIVATE KEY-----',
  '-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAA ',
  '-----',
  'ignore ',
  'ignore all ',
  'ignore all previous ',
  'all ',
  'forget the ',
  'you are now ',
  'act as ',
  'act as an ',
  'your new ',
  'from now on, ',
  'repeat ',
  'reveal your ',
  'reveal ',
  'show me your ',
  '<system ',
  '<|',
  '[system',
  '\nsystem:',
  '### ',
  '===',
  'remove all ',
  'pretend you are ',
  'ignroe ',
  'systme ',
  'ab ',
  '6a ',
  '6a6b',
  'QUJD',
  'QUJD ',
  'a ',
  'a - ',
  'x{',
  '(',
  '((at',
  '[at] ',
  'x [at] ',
  'x.x [dot] ',
  '\ud83d',
  '\ud83d\ude00',
  '\u0430',
  '１',
  'ﬁ',
  'İ',
  'Tel: ',
  'tel 1 ',
  'SSN ',
  'order #',
  'address ',
  'SW1A ',
]

const SMALL = 12_500
const LARGE = 100_000
const TIMES = LARGE / SMALL
/** Eight times the text; a square would be 64 times the time. */
const MOST = 30
/** Less than this is as good as nothing, and no base of a ratio. */
const LEAST_MICROS = 200

const micros = (work: () => void): number => 1_000 * bestCpuMs(work)

for (const slug of ALL_SLUGS) {
  t.test(`${slug}: 100 KB of anything takes at most a few times eight times what 12.5 KB take`, async t => {
    const scanner = compileRules(rulesOf([slug], 'redact', false))
    const worst = { unit: '', ratio: 0, large: 0 }
    for (const unit of UNITS) {
      const text = unit.repeat(Math.ceil(LARGE / unit.length)).slice(0, LARGE)
      const part = text.slice(0, SMALL)
      let ratio = 0
      let large = 0
      // What compilers and collectors do beside it is no proof of a square: a second and third look decide.
      for (let tries = 0; tries < 3; tries++) {
        // As many of the small ones as make the large one, for what can be told of so short a time.
        const smallOnes = micros(() => {
          for (let n = 0; n < TIMES; n++) scanner.scan(part, 'user')
        })
        const small = Math.max(smallOnes / TIMES, LEAST_MICROS)
        large = micros(() => scanner.scan(text, 'user'))
        ratio = large / small
        if (ratio <= MOST) break
      }
      if (ratio > worst.ratio) Object.assign(worst, { unit, ratio, large })
      if (ratio > MOST) t.fail(`${JSON.stringify(unit)}: ${ratio.toFixed(1)} times, ${large.toFixed(0)} µs`)
    }
    t.comment(
      `worst ${JSON.stringify(worst.unit)}: ${worst.ratio.toFixed(1)} times, ${worst.large.toFixed(0)} µs`,
    )
    t.ok(worst.ratio > 0)
  })
}
