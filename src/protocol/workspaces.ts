/** Bodies of the operations on workspaces. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  WORKSPACE_DESCRIPTION_MAX_CHARS,
  WORKSPACE_NAME_MAX_CHARS,
  WORKSPACE_SLUG_PATTERN,
} from './limits.ts'
import { maybe, nullable, text } from './schema.ts'

const name = text({ min: 1, max: WORKSPACE_NAME_MAX_CHARS, storable: true, singleLine: true })
const slug = Type.String({ pattern: WORKSPACE_SLUG_PATTERN })
const description = text({ max: WORKSPACE_DESCRIPTION_MAX_CHARS, storable: true })

export const WorkspaceCreation = Type.Object(
  { name, slug, description: maybe(description) },
  { additionalProperties: false },
)
export type WorkspaceCreation = Static<typeof WorkspaceCreation>

/** What is absent stays; null clears the description. */
export const WorkspaceUpdate = Type.Object(
  {
    name: Type.Optional(name),
    slug: Type.Optional(slug),
    description: Type.Optional(nullable(description)),
  },
  { additionalProperties: false },
)
export type WorkspaceUpdate = Static<typeof WorkspaceUpdate>
