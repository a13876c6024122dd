/** Limits that are overspent while requests run: counters are asked once for all that spend the same money. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { LostRights } from '../../../src/process/threads/lost-rights.ts'
import type { RunningRequest } from '../../../src/server/admission/admission-control.ts'
import { someKey } from '../../storage/records.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('a key with a thousand running requests costs one question for each kind of money', async t => {
  const keys = ['a', 'b'].map(letter => someKey({ hash: letter.repeat(64), limit: 1 }))
  const revoked: string[] = []
  const requests = Array.from({ length: 1_000 }, (_, at): RunningRequest => {
    const keyHash = keys[at % 2]?.hash ?? null
    const running = { reservation: { allowance: {} }, attempts: [{ isByok: at % 4 > 1 }] } as never
    return {
      keyHash,
      running,
      revoke: reason => void revoked.push(`${keyHash} ${at % 4 > 1} ${reason.code}`),
    }
  })
  const free = { reservation: { allowance: null }, attempts: [] } as never
  requests.push({ keyHash: keys[0]?.hash ?? null, running: free, revoke: () => t.fail('it spends nothing') })
  const questions: string[] = []
  const rights = new LostRights({
    keys: { find: hash => keys[hash.startsWith('a') ? 0 : 1] ?? someKey(), lostBy: async () => null },
    rights: {
      lostBy: async () => null,
      async overspentBy({ attempts }, { keyHash }) {
        const isOwn = attempts[0]?.isByok === true
        questions.push(`${keyHash[0]} ${isOwn}`)
        return keyHash[0] === 'a' && !isOwn ? new GatewayError('limit_spent', 'spent') : null
      },
    },
    clock: new TestClock(),
    sources: [{ runningRequests: () => requests, openKeys: () => undefined, endKey: () => undefined }],
  })
  await rights.sweep()
  t.same(questions.sort(), ['a false', 'a true', 'b false', 'b true'])
  t.equal(revoked.length, 250)
  t.same(new Set(revoked), new Set([`${'a'.repeat(64)} false limit_spent`]))
})
