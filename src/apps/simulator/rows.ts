/**
 * Catalogue rows of the simulated provider and its models: plain data in the form of the configuration file. A model's
 * id contains its format: `sim/echo` (Responses), `sim/chat-echo`, `sim/messages-echo`, `sim/gemini-echo`. `sim/embed`
 * creates embeddings.
 */
import type { SimFormat } from './ask.ts'
import { SIM_MODELS } from './behaviours.ts'

interface SimProviderRow {
  slug: string
  name: string
  format: SimFormat
  baseUrl: string
  apiKey: string
  proxy: 'none'
  batch: boolean
  quirks: ['no-native-tools', 'simulated']
}

export interface SimModelRow {
  id: string
  name: string
  contextLength: number
  maxOutputTokens?: number
  outputModalities?: string[]
  endpoints: {
    provider: string
    upstreamModel: string
    format: SimFormat | 'openai-embeddings'
    pricing: { prompt: string; completion?: string }
    zdr: boolean
  }[]
}

export const SIM_SLUG = 'sim'

/** Prefix of the model's name in the id, by format. */
const PREFIXES: Readonly<Record<SimFormat, string>> = {
  'openai-responses': '',
  'openai-chat': 'chat-',
  'anthropic-messages': 'messages-',
  'google-gemini': 'gemini-',
}

export const SIM_FORMATS = Object.keys(PREFIXES) as readonly SimFormat[]

/**
 * The provider's row for the URL of `listen`, which no proxy can reach. Its key is not secret: any is accepted.
 * `batch`: its own batch service runs batches.
 */
export function simProvider(url: string, batch = false): SimProviderRow {
  return {
    slug: SIM_SLUG,
    name: 'Simulated',
    format: 'openai-responses',
    baseUrl: url,
    apiKey: 'simulated',
    proxy: 'none',
    batch,
    quirks: ['no-native-tools', 'simulated'],
  }
}

/** The row of the provider's search engine, which has SearXNG's API and finds the simulated pages. */
export function simEngine(url: string) {
  return { name: SIM_SLUG, kind: 'searxng', baseUrl: url } as const
}

/** A model row for any upstream name, numbers included: `simModel('write-1000-5', 'openai-chat')`. */
export function simModel(upstreamModel: string, format: SimFormat): SimModelRow {
  return {
    id: `${SIM_SLUG}/${PREFIXES[format]}${upstreamModel}`,
    name: `Simulated ${upstreamModel} (${format})`,
    contextLength: 1_000_000,
    maxOutputTokens: 10_000_000,
    // Low, but not zero: a free model would not show that the gateway counts costs.
    endpoints: [
      {
        provider: SIM_SLUG,
        upstreamModel,
        format,
        pricing: { prompt: '0.0000001', completion: '0.0000004' },
        zdr: true,
      },
    ],
  }
}

/** A model for embeddings, by its upstream name: `embed`, or `embed-<dimensions>`. */
function simEmbeddings(upstreamModel = 'embed'): SimModelRow {
  return {
    id: `${SIM_SLUG}/${upstreamModel}`,
    name: `Simulated ${upstreamModel}`,
    contextLength: 1_000_000,
    outputModalities: ['embeddings'],
    endpoints: [
      {
        provider: SIM_SLUG,
        upstreamModel,
        format: 'openai-embeddings',
        pricing: { prompt: '0.0000001' },
        zdr: true,
      },
    ],
  }
}

/** The model that creates images, in the formats that support them. */
function simDrawers(): SimModelRow[] {
  return (['openai-chat', 'google-gemini'] as const).map(format => ({
    ...simModel('draw', format),
    outputModalities: ['text', 'image'],
  }))
}

/** The models that a gateway lists: those to try, some also in other formats, and those for images and embeddings. */
export function listedSimModels(): SimModelRow[] {
  const names = [
    ...SIM_MODELS.filter(model => 'listed' in model).map(model => model.name),
    'write-200-20',
    'call-2',
  ]
  return [
    ...names.map(name => simModel(name, 'openai-responses')),
    ...SIM_FORMATS.slice(1).map(format => simModel('echo', format)),
    simModel('call', 'openai-chat'),
    ...simDrawers(),
    simEmbeddings(),
  ]
}

/** All models: every behaviour in every format that can express it, some with numbers in their names, and embeddings. */
export function simModels(): SimModelRow[] {
  const texts = SIM_MODELS.filter(model => !('draws' in model)).map(model => model.name)
  const names = [...texts, 'write-200-20', 'call-2']
  return [
    ...SIM_FORMATS.flatMap(format => names.map(name => simModel(name, format))),
    ...simDrawers(),
    simEmbeddings(),
  ]
}
