/** Recorded embeddings requests: said by a client of the gateway, and encoded for the provider they were sent to. */
import t from 'tap'
import { createEmbeddings } from '../../../src/dialects/embeddings.ts'
import { EMBEDDINGS_FORMATS } from '../../../src/formats/embeddings/table.ts'
import type { EmbeddingsFormatName, Quirk } from '../../../src/protocol/provider.ts'
import { OFFERED } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { type Recording, recordings, withoutRecordings } from '../../support/recordings.ts'

type Body = Readonly<Record<string, unknown>>

const dialect = createEmbeddings(OFFERED)

interface Speech {
  readonly format: EmbeddingsFormatName
  readonly quirks?: readonly Quirk[]
  readonly path: string
  /** The body of the gateway's own interface that asks for the same. */
  say(recorded: Body): Body
  /** Fields of the recorded body that are the caller's choice of something that the gateway decides. */
  readonly without?: readonly string[]
}

const asOpenai: Speech = { format: 'openai-embeddings', path: '/embeddings', say: recorded => recorded }
const withOutputDimension = ({ output_dimension: dimensions, ...rest }: Body): Body => ({
  ...rest,
  dimensions,
})

interface GeminiRequest {
  readonly content: { readonly parts: readonly { readonly text: string }[] }
  readonly outputDimensionality?: number
  readonly output_dimensionality?: number
  readonly taskType?: string
}

const SPEECHES: Readonly<Record<string, Speech>> = {
  mistral: { ...asOpenai, quirks: ['output-dimension'], say: withOutputDimension },
  voyage: {
    ...asOpenai,
    quirks: ['output-dimension', 'input-type', 'cuts-texts'],
    say: ({ output_dtype: _, ...recorded }) => withOutputDimension(recorded),
    without: ['truncation'],
  },
  cohere: {
    format: 'cohere-embeddings',
    path: '/embed',
    say: ({ model, texts: input, input_type }) => ({ model, input, input_type }),
    // The gateway asks for numbers, and for a refusal of texts that are too long.
    without: ['embedding_types', 'truncate'],
  },
  google: {
    format: 'gemini-embeddings',
    path: ':batchEmbedContents',
    say({ requests }) {
      const all = requests as readonly GeminiRequest[]
      return {
        model: 'x',
        input: all.map(({ content }) => content.parts[0]?.text),
        dimensions: all[0]?.outputDimensionality ?? all[0]?.output_dimensionality,
        input_type: all[0]?.taskType,
      }
    },
  },
  ollama: {
    format: 'ollama-embeddings',
    path: '/embed',
    say: ({ model, prompt }) => ({ model, input: [prompt] }),
  },
}

/** The older path of Ollama knows other fields. */
const OTHER_API = new Set(['ollama'])

function plain(body: Body, without: readonly string[]): Body {
  return Object.fromEntries(
    Object.entries(body).filter(([name, value]) => value !== null && !without.includes(name)),
  )
}

/** Both spellings of Google's fields mean the same. */
function inOneSpelling(body: Body): Body {
  return JSON.parse(JSON.stringify(body).replaceAll('output_dimensionality', 'outputDimensionality'))
}

function modelOf({ model }: Recording, recorded: Body): string {
  return String(recorded['model'] ?? model)
}

t.test('recorded requests come back as they were sent', { skip: withoutRecordings }, async t => {
  const asked = recordings('embeddings').filter(recording => recording.request() !== null)
  let same = 0
  for (const recording of asked) {
    const recorded = recording.request() as Body
    const { format, quirks = [], path, say, without = [] } = SPEECHES[recording.provider] ?? asOpenai
    const model = modelOf(recording, recorded)
    const said = recording.name.startsWith('doubleword.rig.embedding-dimensions-empty')
    const { request, settings } = dialect.parse({
      ...say(recorded),
      model: 'acme/x',
      // The gateway refuses an empty text itself.
      ...(said ? { input: ['x'] } : {}),
    })
    const wire = EMBEDDINGS_FORMATS[format].encode(
      { request, settings, endUser: null },
      endpointOf(format, { quirks, upstreamModel: model }),
    )
    t.ok(wire.path.endsWith(path), wire.path)
    if (OTHER_API.has(recording.provider)) {
      t.match(wire.body, { model, input: [recorded['prompt']] }, recording.name)
      same++
      continue
    }
    const expected = { ...plain(recorded, without), ...(said ? { input: ['x'] } : {}) }
    if (t.same(inOneSpelling(plain(wire.body, without)), inOneSpelling(expected), recording.name)) same++
  }
  t.comment(`${same}/${asked.length} recorded requests`)
  t.equal(asked.length, 29)
})
