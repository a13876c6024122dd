/** Summaries for operations that nobody asks for one. */
import { randomBytes } from 'node:crypto'
import { createTextSeal } from '../../src/credentials/sealed-text.ts'

export const NO_SUMMARIES = {
  summaries: {
    seal: createTextSeal([{ id: 'test', secret: randomBytes(32) }], 'summaries'),
    inputTokens: () => 0,
    mode: 'own' as const,
  },
}
