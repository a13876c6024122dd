/** Kinds of values that several settings and rows share. Pure. */
import { availableParallelism } from 'node:os'
import { Type } from '@sinclair/typebox'

export const Slug = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)?$', maxLength: 128 })
export const Address = Type.String({ minLength: 1 })
export const Host = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9.-]*(:\\d{1,5})?$', maxLength: 253 })
export const Milliseconds = Type.Integer({ minimum: 1, maximum: 86_400_000 })
export const ModelName = Type.String({ minLength: 1, maxLength: 256 })
export const Port = Type.Integer({ minimum: 0, maximum: 65_535 })
export const Threads = Type.Integer({ minimum: 1, maximum: 256 })
export const PerMinute = Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000_000 })], {
  expected: 'null or an integer from 1 to 1000000000',
})

export const coresMinusOne = {
  default: () => Math.max(1, availableParallelism() - 1),
  defaultText: 'cores minus one, at least one',
}

export const redisUrl = {
  accepts: (url: string | null) =>
    url === null || (/^rediss?:\/\/[^/\s]+(\/\d+)?$/.test(url) && URL.canParse(url)),
  expected: 'a URL of the form redis://HOST:PORT or rediss://HOST:PORT',
}
