/** A stub of proofs for operation tables in tests that do not use them. */
import type { ProofDeps } from '../../src/api/proof.ts'
import { createLog } from '../../src/base/log/log.ts'
import { TestClock } from './test-clock.ts'

export const NO_PROOFS: { readonly proofs: ProofDeps } = {
  proofs: {
    keys: {
      current() {
        throw new Error('not asked for')
      },
    },
    clock: new TestClock(),
    log: createLog('silent', { write: () => undefined }),
    region: 'local',
  },
}
