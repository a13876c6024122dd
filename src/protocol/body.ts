/**
 * The check that every request body passes once. Pure. Hot path: one compiled check and one walk; what is wrong is
 * worked out only after something was.
 */
import type { Static, TSchema } from '@sinclair/typebox'
import { GatewayError } from '../errors.ts'
import { explain } from './explain.ts'
import { forbiddenKey } from './forbidden-keys.ts'
import { compile } from './schema.ts'

/**
 * Makes the check of one kind of body; at start-up, because it compiles the schema. The check returns the body as it
 * came: nothing is copied, no default is filled in.
 * It throws GatewayError `invalid_request` that names the field by its path and says what is expected there, and
 * never repeats what the client sent.
 */
export function bodyCheck<Schema extends TSchema>(schema: Schema): (body: unknown) => Static<Schema> {
  const fits = compile(schema)
  return body => {
    const forbidden = forbiddenKey(body)
    if (forbidden !== null) throw new GatewayError('invalid_request', forbidden)
    if (!fits(body)) {
      throw new GatewayError('invalid_request', explain(schema, body) ?? 'body: does not fit the interface')
    }
    return body as Static<Schema>
  }
}
