/** Own goldens of the formats of embeddings: one small reply for each way in which providers deviate, or break. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { EMBEDDINGS_FORMATS } from '../../../src/formats/embeddings/table.ts'
import { EMBEDDINGS_FORMAT_NAMES } from '../../../src/protocol/provider.ts'
import { AS_FLOATS, decodeVectors } from '../../support/decode-embeddings.ts'
import { goldens } from '../../support/goldens.ts'
import { arrivals } from '../../support/recordings.ts'

interface Expected {
  readonly inputs: number
  readonly isInt8?: boolean
  readonly error?: { readonly code: string; readonly status: number }
  readonly id?: string | null
  readonly tokens?: number | null
  readonly vectors?: readonly number[][]
}

for (const name of EMBEDDINGS_FORMAT_NAMES) {
  t.test(`every golden of ${name} decodes to what it says, at any border`, async t => {
    const all = goldens(name)
    t.ok(all.length > 2)
    for (const golden of all) {
      const { inputs, isInt8 = false, error, id, tokens, vectors } = golden.expected as Expected
      for (const { name: arrival, chunks } of arrivals(golden.bytes)) {
        const decode = () => decodeVectors(EMBEDDINGS_FORMATS[name], chunks, inputs, { ...AS_FLOATS, isInt8 })
        const title = `${golden.name}, ${arrival}`
        if (error === undefined) {
          const got = decode()
          t.same(
            { id: got.upstreamId, tokens: got.usage?.inputTokens ?? null, vectors: got.vectors },
            { id, tokens, vectors },
            title,
          )
          t.equal(got.usage?.outputTokens ?? 0, 0)
        } else {
          try {
            decode()
            t.fail(`${title} should fail`)
          } catch (thrown) {
            t.ok(thrown instanceof GatewayError, title)
            const { code, status } = thrown as GatewayError
            t.same({ code, status }, error, title)
          }
        }
      }
    }
    t.comment(`${all.length} goldens`)
  })
}
