/** Providers in the public list that the gateway cannot call, each with the reason. Data. */
import type { UnofferedRow } from './row.ts'

const IMAGES = 'its public API only generates images, in a format that this gateway does not support'
const VIDEO = 'its public API only generates video'
const SPEECH = 'its public API only generates or recognizes speech'
const NO_PUBLIC_API = 'the format of its API is not public'

const row = (name: string, notOffered: string): UnofferedRow => ({ name, notOffered })

export const UNOFFERED_ROWS = {
  'black-forest-labs': row('Black Forest Labs', IMAGES),
  cosine: row('Cosine', 'it accepts logins from its own application, but no API keys'),
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
  'wandb-legacy': row('WandB (legacy)', 'it was replaced by wandb, which accepts the same keys'),
} as const satisfies Readonly<Record<string, UnofferedRow>>
