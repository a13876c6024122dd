/** Proofs for operations that nobody asks for one. */
import type { ProofDeps } from '../../src/api/proof.ts'
import { createLog } from '../../src/log/log.ts'
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
