import t from 'tap'
import { callerRequestId, userAgentFamily } from '../../../src/base/telemetry/caller-names.ts'

t.test('an id of a request is taken if a log and a header can carry it', t => {
  for (const id of ['a', '7f0c…'.slice(0, 4), 'req_01:abc/def=~.-', 'x'.repeat(128)])
    t.equal(callerRequestId(id), id)
  const unfit = [
    undefined,
    '',
    ' a',
    'a b',
    'a,b',
    '"a"',
    'ä',
    'a\n',
    '-a',
    'x'.repeat(129),
    `sk-gw-v1-${'0'.repeat(64)}`,
  ]
  for (const id of unfit) t.equal(callerRequestId(id), undefined, id ?? 'absent')
  t.end()
})

t.test('the family of a program is its name without versions and comments', t => {
  const families: readonly [string, string | undefined][] = [
    ['claude-cli/2.1.0 (external, cli)', 'claude-cli'],
    ['OpenAI/JS 6.10.0', 'OpenAI/JS'],
    ['OpenAI/Python 2.1', 'OpenAI/Python'],
    ['Mozilla/5.0 (X11; Linux x86_64)', 'Mozilla'],
    ['codex_cli_rs/0.50 (Debian 12; x86_64) xterm', 'codex_cli_rs'],
    ['node', 'node'],
    ['curl/8.5.0', 'curl'],
    ['(nothing)', undefined],
    ['', undefined],
    [`sk-gw-v1-${'0'.repeat(64)}`, undefined],
  ]
  for (const [text, family] of families) t.equal(userAgentFamily(text), family, text)
  t.equal(userAgentFamily('x'.repeat(500))?.length, 40)
  t.end()
})
