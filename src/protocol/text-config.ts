/** `text` of a request and of a response: the form and length of what the model writes. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { NAME_PATTERN } from './limits.ts'
import { AnyObject, maybe, oneOf, variants } from './schema.ts'

export const TextFormat = variants(
  {
    text: Type.Object({ type: Type.Literal('text') }),
    json_object: Type.Object({ type: Type.Literal('json_object') }),
    json_schema: Type.Object({
      type: Type.Literal('json_schema'),
      name: Type.String({ pattern: NAME_PATTERN }),
      schema: AnyObject,
      description: maybe(Type.String()),
      strict: maybe(Type.Boolean()),
    }),
  },
  { noun: 'text format' },
)
export type TextFormat = Static<typeof TextFormat>

export const TextConfig = Type.Object({
  format: maybe(TextFormat),
  verbosity: maybe(oneOf('low', 'medium', 'high', 'xhigh', 'max')),
})
export type TextConfig = Static<typeof TextConfig>
