/** Properties that follow from the name of a Bedrock model: its path, its family, and what the family accepts. Pure. */
import { inexpressible } from '../failure.ts'

/** Families whose requests differ. Names may begin with the region of an inference profile, or be part of an ARN. */
export type Family = 'claude' | 'nova' | 'gpt-oss' | 'other'

export function familyOf(model: string): Family {
  if (/anthropic\.|claude/.test(model)) return 'claude'
  if (/amazon\.nova|nova-/.test(model)) return 'nova'
  return model.includes('gpt-oss') ? 'gpt-oss' : 'other'
}

/** True if the family has prompt caching. The others refuse cache points. */
export function takesCachePoints(family: Family): boolean {
  return family === 'claude' || family === 'nova'
}

/** True if the family also takes cache points on tools, and points for an hour. The others refuse such points. */
export function takesAllPoints(family: Family): boolean {
  return family === 'claude'
}

/**
 * The path of a model. Its name, or the ARN of a profile, is one segment.
 * @throws GatewayError `unprocessable` for a name that could escape from its segment
 */
export function modelPath(name: string): string {
  if (name === '' || name === '.' || name === '..' || !name.isWellFormed()) {
    throw inexpressible('model', 'the model name cannot be part of a URL')
  }
  return `/model/${encodeURIComponent(name)}`
}
