import { login } from '../../limits.mjs';

export const action = ({ request }) => login(request);
