/** A stub of summaries for operation tables in tests that do not use them. */
import { randomBytes } from 'node:crypto'
import { createTextSeal } from '../../src/providers/credentials/sealed-text.ts'

export const NO_SUMMARIES = {
  summaries: {
    seal: createTextSeal([{ id: 'test', secret: randomBytes(32) }], 'summaries'),
    inputTokens: () => 0,
    mode: 'own' as const,
  },
}
