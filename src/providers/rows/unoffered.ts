/** Providers in the public list that the gateway cannot call, each with the reason. Data. */
import type { UnofferedRow } from './row.ts'

const IMAGES = 'its public API makes images only, in a form that this gateway does not speak'
const VIDEO = 'its public API makes video only'
const SPEECH = 'its public API makes or reads speech only'
const NO_PUBLIC_API = 'the form of its API is not public'

const row = (name: string, notOffered: string): UnofferedRow => ({ name, notOffered })

export const UNOFFERED_ROWS = {
  'black-forest-labs': row('Black Forest Labs', IMAGES),
  cosine: row('Cosine', 'it takes logins of its own application, and no API keys'),
  decart: row('Decart', VIDEO),
  deepgram: row('Deepgram', SPEECH),
  'fish-audio': row('Fish Audio', SPEECH),
  heygen: row('HeyGen', VIDEO),
  'inferact-vllm': row('Inferact vLLM', NO_PUBLIC_API),
  ionstream: row('Ionstream', NO_PUBLIC_API),
  krea: row('Krea', IMAGES),
  modelrun: row('ModelRun', NO_PUBLIC_API),
  'nex-agi': row('Nex AGI', NO_PUBLIC_API),
  'open-inference': row('OpenInference', NO_PUBLIC_API),
  quiver: row('Quiver', IMAGES),
  recraft: row('Recraft', IMAGES),
  runway: row('Runway', VIDEO),
  sourceful: row('Sourceful', IMAGES),
  typesafe: row('Typesafe', NO_PUBLIC_API),
  unbiased: row('Unbiased', NO_PUBLIC_API),
  'wandb-legacy': row('WandB (legacy)', 'it was replaced by wandb, which takes the same keys'),
} as const satisfies Readonly<Record<string, UnofferedRow>>
