/** Providers in the public list that the gateway cannot call, each with the reason. Data. */
import type { UnofferedRow } from './row.ts'

const IMAGES_ONLY = 'its public API only generates images, in a format that this gateway does not support'
const VIDEO_ONLY = 'its public API only generates video'
const SPEECH_ONLY = 'its public API only generates or recognizes speech'
const NO_PUBLIC_API = 'the format of its API is not public'

const row = (name: string, notOffered: string): UnofferedRow => ({ name, notOffered })

export const UNOFFERED_ROWS = {
  'black-forest-labs': row('Black Forest Labs', IMAGES_ONLY),
  cosine: row('Cosine', 'it accepts logins from its own application, but no API keys'),
  decart: row('Decart', VIDEO_ONLY),
  deepgram: row('Deepgram', SPEECH_ONLY),
  'fish-audio': row('Fish Audio', SPEECH_ONLY),
  heygen: row('HeyGen', VIDEO_ONLY),
  'inferact-vllm': row('Inferact vLLM', NO_PUBLIC_API),
  ionstream: row('Ionstream', NO_PUBLIC_API),
  krea: row('Krea', IMAGES_ONLY),
  modelrun: row('ModelRun', NO_PUBLIC_API),
  'nex-agi': row('Nex AGI', NO_PUBLIC_API),
  'open-inference': row('OpenInference', NO_PUBLIC_API),
  quiver: row('Quiver', IMAGES_ONLY),
  recraft: row('Recraft', IMAGES_ONLY),
  runway: row('Runway', VIDEO_ONLY),
  sourceful: row('Sourceful', IMAGES_ONLY),
  typesafe: row('Typesafe', NO_PUBLIC_API),
  unbiased: row('Unbiased', NO_PUBLIC_API),
  'wandb-legacy': row('WandB (legacy)', 'it was replaced by wandb, which accepts the same keys'),
} as const satisfies Readonly<Record<string, UnofferedRow>>
