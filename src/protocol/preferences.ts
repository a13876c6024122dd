/** `provider` of a request: which endpoints may serve it, and in which order. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { maybe, oneOf } from './schema.ts'

/** Slugs or display names. */
const names = maybe(Type.Array(Type.String()))

const percentiles = Type.Object({
  p50: maybe(Type.Number({ minimum: 0 })),
  p75: maybe(Type.Number({ minimum: 0 })),
  p90: maybe(Type.Number({ minimum: 0 })),
  p99: maybe(Type.Number({ minimum: 0 })),
})
/** A number is the median. */
const threshold = maybe(Type.Union([Type.Number({ minimum: 0 }), percentiles]))

/** USD, as a number or a decimal string. */
const price = maybe(
  Type.Union([Type.Number({ minimum: 0 }), Type.String({ pattern: '^[0-9]{1,20}(\\.[0-9]{1,20})?$' })]),
)

const sorting = oneOf('price', 'throughput', 'latency', 'exacto')

export const ProviderPreferences = Type.Object({
  order: names,
  allow_fallbacks: maybe(Type.Boolean()),
  require_parameters: maybe(Type.Boolean()),
  data_collection: maybe(oneOf('allow', 'deny')),
  zdr: maybe(Type.Boolean()),
  enforce_distillable_text: maybe(Type.Boolean()),
  only: names,
  ignore: names,
  quantizations: maybe(
    Type.Array(
      oneOf(
        'int4',
        'int8',
        'fp4',
        'mxfp4',
        'nvfp4',
        'fp6',
        'fp8',
        'mxfp8',
        'fp16',
        'bf16',
        'fp32',
        'unknown',
      ),
    ),
  ),
  sort: maybe(
    Type.Union([sorting, Type.Object({ by: maybe(sorting), partition: maybe(oneOf('model', 'none')) })]),
  ),
  max_price: maybe(
    Type.Object({ prompt: price, completion: price, request: price, image: price, audio: price }),
  ),
  preferred_max_latency: threshold,
  preferred_min_throughput: threshold,
})
export type ProviderPreferences = Static<typeof ProviderPreferences>
