/** The bodies of POST and PATCH /end-users as schemas, and the grammar of a tracking string. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { bodyCheck } from './body.ts'
import { IDENTIFIER_MAX_CHARS } from './limits.ts'
import { compile, text } from './schema.ts'

/** The same string that inference requests carry as `user`. Nothing is trimmed, folded or normalized. */
export const EndUserName = text({ min: 1, max: IDENTIFIER_MAX_CHARS, noControls: true })

export const EndUserCreation = Type.Object({ user: EndUserName }, { additionalProperties: false })
export type EndUserCreation = Static<typeof EndUserCreation>

export const EndUserUpdate = Type.Object({ is_active: Type.Boolean() }, { additionalProperties: false })
export type EndUserUpdate = Static<typeof EndUserUpdate>

/** Each throws GatewayError `invalid_request` that names the field. */
export const checkEndUserCreation = bodyCheck(EndUserCreation)
export const checkEndUserUpdate = bodyCheck(EndUserUpdate)

/** Whether a tracking string could have been registered. */
export const isEndUserName = compile(EndUserName)
