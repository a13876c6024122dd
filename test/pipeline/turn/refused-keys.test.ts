/** Refused provider keys are logged once each for a while, with the credential of a workspace by its id. */
import t from 'tap'
import type { AttemptRecord } from '../../../src/exchange/exchange.ts'
import { RefusedKeys } from '../../../src/pipeline/turn/refused-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('each key has a line, and another one after ten minutes', async t => {
  const clock = new TestClock()
  const lines: unknown[] = []
  const keys = new RefusedKeys({ clock, log: { notice: (...line) => void lines.push(line) } })
  const attempt = (slug: string, credential: object | null, status: number | null) =>
    ({ endpoint: { provider: { slug } }, credential, status }) as unknown as AttemptRecord
  const said = 'a provider refuses a key: check it, its credit and its permissions'
  keys.note(attempt('acme', null, 401))
  keys.note(attempt('acme', null, 401))
  keys.note(attempt('acme', { id: 'cred_1' }, 402))
  keys.note(attempt('other', null, null))
  t.same(lines, [
    ['providers', said, { provider: 'acme', status: 401, key: 'shared' }],
    ['providers', said, { provider: 'acme', status: 402, key: 'own', credential: 'cred_1' }],
    ['providers', said, { provider: 'other', key: 'shared' }],
  ])
  clock.advance(600_000)
  keys.note(attempt('acme', null, 401))
  t.equal(lines.length, 4)
})
