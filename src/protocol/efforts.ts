/** Efforts of reasoning, from none to the most. Pure. */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const
export type EffortName = (typeof EFFORTS)[number]
